"""Forced text: which tokens stand for it, and what of it is left to be sampled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ramet.runtime.grammar.jump import Jumps
from ramet.runtime.grammar.matcher import Matcher
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.tokenizer import Tokenizer

Words = Callable[..., Tokenizer]
Match = Callable[..., Matcher]


def jumped(tokenizer: Tokenizer, matcher: Matcher, before: str = "") -> list[bytes]:
    spelled = tokenizer.token_bytes
    tokens = {spelled(token): token for token in range(tokenizer.vocab_size)}

    def encode(text: str) -> list[int]:
        """The longest token there is, again and again."""
        data, ids = text.encode(), []
        while data:
            size = next(n for n in range(len(data), 0, -1) if data[:n] in tokens)
            ids.append(tokens[data[:size]])
            data = data[size:]
        return ids

    jumps = Jumps(Vocabulary(tokenizer), encode)
    ids = encode(before)
    for token in ids:
        assert matcher.advance(token)
    at = matcher.copy()
    found = [spelled(token) for token in jumps.tokens(matcher, ids)]
    assert matcher.next_tokens == at.next_tokens
    return found


@pytest.mark.parametrize(
    ("regex", "before", "expected"),
    [
        ("abc", "", [b"ab", b"c"]),
        ("[xy]abc", "x", [b"ab", b"c"]),
        ("ab[cd]", "", [b"ab"]),  # no token joins "ab" with what may follow
        ("ab(c|e)", "", [b"ab"]),
        ("d(e|f)", "", []),  # "de" is a token
        ("cd(e|f)", "", [b"c"]),
        ("cd(g|f)", "", [b"c", b"d"]),
        ("(a|b)c", "", []),
        ("abc?", "", [b"ab"]),
        ("cd?", "", [b"c"]),
        ("ab(d)*", "", [b"ab"]),
    ],
)
def test_what_is_forced(
    worded: Words, match: Match, regex: str, before: str, expected: list[bytes]
) -> None:
    tokenizer = worded("ab", "de")
    assert jumped(tokenizer, match(tokenizer, regex), before) == expected


def test_characters_of_several_tokens(worded: Words, match: Match) -> None:
    """B38 of the bug reports: nothing of a split character, and all of a whole one."""
    tokenizer = worded()
    assert b"".join(jumped(tokenizer, match(tokenizer, "(是|昰)"))) == b""
    assert b"".join(jumped(tokenizer, match(tokenizer, "是x|是y"))).decode() == "是"
    assert b"".join(jumped(tokenizer, match(tokenizer, "不确定"))).decode() == "不确定"


def test_the_tokens_before_decide_with_it(worded: Words, match: Match) -> None:
    """A token that the tokenizer would not have ended there leaves the forced text by itself."""
    tokenizer = worded("xa", "ab")
    assert jumped(tokenizer, match(tokenizer, "xab")) == [b"xa", b"b"]
    assert jumped(tokenizer, match(tokenizer, "xab|yac"), "x") == [b"ab"]
