from __future__ import annotations

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.book import Places


@pytest.mark.parametrize(
    ("offset", "place"), [(0, "line 1, column 1"), (2, "line 2, column 1"), (4, "line 3, column 1")]
)
def test_places(offset: int, place: str) -> None:
    with pytest.raises(GrammarError, match=f"^ebnf: {place}: odd$"):
        Places("ebnf", "a\nb\nc").fail(offset, "odd")
