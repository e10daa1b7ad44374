from __future__ import annotations

from collections.abc import Callable

import pytest

from ramet.runtime.grammar.acceptance import Acceptance, check_text_against
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.tokenizer import Tokenizer

REGEX = Constraint("regex", "是[0-9]{2,3}")


@pytest.mark.parametrize("kind", ["bytes", "tiny", "words"])
@pytest.mark.parametrize(
    ("text", "position"),
    [("是12", None), ("是1x3", 2), ("是1", 2), ("x", 0), ("是1234", 4), ("", 0)],
)
def test_it_says_where_a_text_fails(
    worded: Callable[..., Tokenizer], kind: str, text: str, position: int | None
) -> None:
    tokenizer = {"bytes": None, "tiny": Tokenizer.tiny(), "words": worded("是", "12", "123")}[kind]
    answer = check_text_against(REGEX, text, tokenizer)
    assert bool(answer) == (position is None)
    assert answer.position == position or (kind == "words" and not answer)
    assert answer.reason != "" or answer.accepted


def test_half_a_character_is_placed_at_its_beginning() -> None:
    answer = check_text_against(Constraint("regex", "a[🐙]"), "a🚀")
    assert answer == Acceptance(False, 1, "'🚀' can't follow")


def test_text_of_a_special_token_is_text() -> None:
    constraint = Constraint("regex", r"<\|im_end\|>")
    assert check_text_against(constraint, "<|im_end|>", Tokenizer.tiny())
