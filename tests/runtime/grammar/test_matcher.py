"""A token is unmasked if and only if the constraint accepts it; states are copied and undone."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from scripted_runtime import id_of

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.limits import Limits
from ramet.runtime.grammar.matcher import Matcher, exceeded, look_ahead
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.tokenizer import Tokenizer

Words = Callable[..., Tokenizer]
Match = Callable[..., Matcher]


def allowed(matcher: Matcher) -> list[int]:
    bits = matcher.next_tokens
    return [token for token in range(bits.bit_length()) if bits >> token & 1]


def shown(matcher: Matcher, tokenizer: Tokenizer) -> set[str]:
    return {tokenizer.token_bytes(token).decode() for token in allowed(matcher)}


REGEXES = [
    "(ab|abc|b)+x?",
    "[ab]{2,5}",
    "(?i)abba|x.*",
    r"\w+ \w+",
    "(是|否|不确定)",
    "(a?){30}b",
]


@pytest.mark.parametrize("regex", REGEXES)
def test_a_token_is_unmasked_if_and_only_if_it_can_be_taken(
    worded: Words, match: Match, regex: str
) -> None:
    tokenizer = worded("ab", "abc", "ba", "x ", " x", "aa", "bx", "AB", "是", "不确", "定")
    generator = random.Random(regex)
    for _ in range(8):
        matcher = match(tokenizer, regex)
        for _ in range(8):
            mask = allowed(matcher)
            taken = []
            for token in range(tokenizer.vocab_size):
                twin = matcher.copy()
                if twin.advance(token):
                    taken.append(token)
            silent = tokenizer.special_ids.union(tokenizer.eos_ids)
            assert [token for token in taken if token not in silent] == mask
            assert set(taken) & silent == (set(tokenizer.eos_ids) if matcher.accepting else set())
            if not mask:
                break
            assert matcher.advance(generator.choice(mask))


@pytest.mark.parametrize("regex", REGEXES[:4])
def test_what_is_unmasked_leads_to_a_match(worded: Words, match: Match, regex: str) -> None:
    """Independently of the engine: every walk along masks ends in what `re` accepts."""
    tokenizer = worded("ab", "abc", "ba", "x ", " x", "aa", "bx", "AB")
    generator = random.Random(1)
    for _ in range(30):
        matcher = match(tokenizer, regex)
        data = b""
        while not matcher.accepting or (allowed(matcher) and generator.random() < 0.7):
            token = generator.choice(allowed(matcher))
            assert matcher.advance(token)
            data += tokenizer.token_bytes(token)
        assert re.fullmatch(regex, data.decode())


def test_every_next_piece_of_a_forced_text_is_unmasked(worded: Words, match: Match) -> None:
    """B45 of the bug reports."""
    tokenizer = worded("Mo", "da", "day", "nday")
    matcher = match(tokenizer, "Monday|Mozart")
    assert shown(matcher, tokenizer) == {"M", "Mo"}
    assert matcher.advance(id_of(tokenizer, "Mo"))
    assert shown(matcher, tokenizer) == {"n", "nday", "z"}
    assert matcher.advance(id_of(tokenizer, "n"))
    assert shown(matcher, tokenizer) == {"d", "da", "day"}


def test_an_option_that_begins_another(match: Match) -> None:
    """B05 (1) of the bug reports, as a regex."""
    tiny = Tokenizer.tiny()
    regex = "(x|xyz|w)(yZ)?"
    for text in ("x", "xyZ", "xyz", "xyzyZ"):
        matcher = match(tiny, regex)
        assert all(map(matcher.advance, text.encode())), text
        assert matcher.accepting, text
    matcher = match(tiny, regex)
    assert all(map(matcher.advance, b"xy"))
    assert shown(matcher, tiny) == {"z", "Z"}


def test_a_character_of_several_tokens(match: Match) -> None:
    """B37 of the bug reports: byte by byte, and no half character is ever the end."""
    tiny = Tokenizer.tiny()
    for regex in ("[🐀-🐿]+", "[🐙]+"):
        matcher = match(tiny, regex)
        for byte in "🐙".encode():
            assert not matcher.accepting
            assert matcher.advance(byte)
        assert matcher.accepting
        rocket = match(tiny, regex)
        assert not all(map(rocket.advance, "🚀".encode()))


def test_bytes_that_only_byte_tokens_have(fallback: Words, match: Match) -> None:
    """B47 of the bug reports."""
    tokenizer = fallback("▁", "<0xE9", "<", "是")
    for regex in ("龘", ".+"):
        matcher = match(tokenizer, regex)
        for byte in "龘".encode():
            token = id_of_byte(tokenizer, byte)
            assert token in allowed(matcher)
            assert matcher.advance(token)
        assert matcher.accepting
    matcher = match(tokenizer, "龘")
    assert allowed(matcher) == [id_of_byte(tokenizer, 0xE9)]


def id_of_byte(tokenizer: Tokenizer, byte: int) -> int:
    return next(i for i in range(256) if tokenizer.token_bytes(i) == bytes([byte]))


def test_the_end_is_one_more_token_however_it_is_fed(worded: Words, match: Match) -> None:
    """B56 of the bug reports."""
    tokenizer = worded("ok")
    ok, end = id_of(tokenizer, "ok"), tokenizer.eos_ids[0]
    matcher = match(tokenizer, "ok")
    assert not matcher.advance(end)
    for _ in range(2):
        assert matcher.advance(ok)
        assert matcher.accepting
        assert matcher.finished
        assert matcher.advance(end)
        for token in (ok, end, id_of(tokenizer, "o")):
            assert not matcher.advance(token)
        assert matcher.finished
        matcher.rollback(2)
        assert not matcher.accepting
        assert shown(matcher, tokenizer) == {"o", "ok"}
    with pytest.raises(ValueError, match="0 tokens"):
        matcher.rollback(1)


def test_a_special_token_is_never_text(worded: Words, match: Match) -> None:
    """B35 and B57 of the bug reports: its spelling is ordinary characters."""
    tokenizer = worded("</")
    end = id_of(tokenizer, "</s>")
    matcher = match(tokenizer, "[a-z ]+|</s>")
    assert end not in allowed(matcher)
    assert shown(matcher, tokenizer) >= {"<", "</", "a"}
    assert all(map(matcher.advance, b"</s>"))
    assert matcher.finished
    quoted = match(tokenizer, '"[^"]*"')
    assert quoted.advance(ord('"'))
    assert not tokenizer.special_ids.intersection(allowed(quoted))


def test_a_copy_goes_its_own_way(match: Match) -> None:
    matcher = match(Tokenizer.tiny(), "ab|ac")
    assert matcher.advance(ord("a"))
    twin = matcher.copy()
    assert twin.advance(ord("b"))
    assert twin.finished
    assert allowed(matcher) == [ord("b"), ord("c")]
    twin.rollback(2)
    assert twin.advance(ord("a"))


def test_a_refused_token_changes_nothing(match: Match) -> None:
    matcher = match(Tokenizer.tiny(), "ab")
    assert not matcher.advance(ord("x"))
    assert allowed(matcher) == [ord("a")]
    assert matcher.advance(ord("a"))


def test_copies_survive_one_that_exceeds_the_limits(worded: Words, match: Match) -> None:
    """They share an automaton, and what one of them does to it is no error of the others."""
    limits = Limits(states=3000)
    first = match(worded(), "[ab]*a[ab]{40}", limits)
    others = [first.copy() for _ in range(3)]
    generator = random.Random(1)
    for _ in range(1000):
        for other in others:
            assert other.advance(generator.choice(b"ab"))
            assert set(allowed(other)) == set(b"ab")
    assert first.advance(ord("a"))
    assert set(allowed(first)) == set(b"ab")


def test_a_text_that_needs_too_much_is_an_error(worded: Words, match: Match) -> None:
    matcher = match(worded(), "[ab]*a[ab]{40}", Limits(states=500))
    generator = random.Random(1)

    def feed() -> None:
        for _ in range(3000):
            assert matcher.advance(generator.choice(b"ab"))
            assert matcher.next_tokens

    with pytest.raises(GrammarError, match="too complex to follow"):
        feed()


def test_many_optional_copies() -> None:
    """B41 of the bug reports, as regexes."""
    from ramet.runtime.grammar.acceptance import check_text_against
    from ramet.runtime.grammar.spec import Constraint

    optional, nested = Constraint("regex", "(a?){30}b"), Constraint("regex", "(a*)*b")
    for count in range(31):
        assert check_text_against(optional, "a" * count + "b")
        assert check_text_against(nested, "a" * count + "b")
    assert not check_text_against(optional, "a" * 31 + "b")
    assert not check_text_against(nested, "a" * 31)


def test_many_look_ahead_at_once(worded: Words, match: Match) -> None:
    tokenizer = worded("ab", "abc", "cd")
    start = match(tokenizer, "(ab|c)*d")
    one_by_one, together = [], []
    for text in ("", "a", "ab", "c", "abc", "cab", "cd"):
        for found in (one_by_one, together):
            matcher = start.copy()
            assert all(map(matcher.advance, text.encode()))
            found.append(matcher)
    look_ahead(together, Vocabulary(tokenizer).masks)
    assert not any(matcher.next_is_unknown for matcher in together)
    assert [m.next_tokens for m in together] == [m.next_tokens for m in one_by_one]


def test_one_in_error_stays_unknown_when_many_look_ahead(worded: Words, match: Match) -> None:
    tokenizer = worded()
    start = match(tokenizer, "[ab]*a[ab]{40}", Limits(states=500))
    matchers = [start.copy() for _ in range(6)]
    assert all(matcher.advance(ord("b")) for matcher in matchers)
    driver, generator = start.copy()._native, random.Random(1)
    while not exceeded(driver):
        driver.try_consume_tokens([generator.choice(b"ab")])
        driver.compute_bitmask()
    look_ahead(matchers, Vocabulary(tokenizer).masks)
    assert all(matcher.next_is_unknown for matcher in matchers)
    assert all(set(allowed(matcher)) == set(b"ab") for matcher in matchers)
