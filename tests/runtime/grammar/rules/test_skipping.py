from __future__ import annotations

import pytest

from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.rules.nodes import Nodes
from ramet.runtime.grammar.rules.skipping import skips_fit_in


@pytest.mark.parametrize(
    ("skips", "fit"),
    [
        ([r"\s+"], True),
        ([r"\s+", r"\n|\r"], True),
        (["#[^\n]*\n", " "], True),
        (["#[^\n]*"], False),
        (["x+"], False),
        (["//[^\n]*"], False),
    ],
)
def test_whether_it_matters_where_a_skip_ends(skips: list[str], fit: bool) -> None:
    nodes = Nodes()
    terminals = [nodes.pattern(parse(regex)) for regex in ("[a-z]+", '"[^"]*"', "/")]
    assert skips_fit_in(nodes, terminals, [nodes.pattern(parse(skip)) for skip in skips]) == fit
