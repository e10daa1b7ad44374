"""Runs of white space and digits end, and nothing else is barred."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.grammar.closing.pace import MAX_DIGITS, MAX_WHITESPACE, Barred, Pace

TOKENS = [
    *(bytes([byte]) for byte in b' \n\t\r0123456789-.eE+{}[],:"\\abc'),
    *(b" " * size for size in (2, 4, 8, 16, 17, 32)),
    b"\n    ",
    b"00",
    b"000000",
    b"1" * 31,
    b"1" * 40,
    b" 12",
    b'" ',
    b'"' + b" " * 17,
    b",\n  ",
    b"," + b" " * 20,
    b"\\n",
    b"abc",
]


LETTERS = {text[0]: token for token, text in enumerate(TOKENS) if len(text) == 1}


@pytest.fixture(scope="module")
def barred() -> Barred:
    return Barred((text, token) for token, text in enumerate(TOKENS))


def after(barred: Barred, text: bytes) -> Pace:
    pace = Pace(barred)
    for byte in text:
        pace.push(bytes([byte]))
    return pace


def is_barred(pace: Pace, text: bytes) -> bool:
    return bool(pace.barred >> TOKENS.index(text) & 1)


def longest_runs(text: bytes) -> tuple[int, int]:
    """(white space, digits) in a row outside of strings, counted without cleverness."""
    inside = escaped = False
    runs, most = [0, 0], [0, 0]
    for byte in text:
        kind = 0 if byte in b" \t\n\r" else 1 if byte in b"0123456789" else None
        if inside:
            kind = None
            inside = escaped or byte != 0x22
            escaped = not escaped and byte == 0x5C
        elif byte == 0x22:
            inside = True
        for which in (0, 1):
            runs[which] = runs[which] + 1 if kind == which else 0
            most[which] = max(most[which], runs[which])
    return most[0], most[1]


def test_a_run_of_white_space_ends(barred):
    pace = after(barred, b"[" + b" " * 15)
    assert not is_barred(pace, b" ")
    assert is_barred(pace, b"  ")
    pace.push(b"\n")
    assert is_barred(pace, b" ")
    assert is_barred(pace, b"\t")
    assert not is_barred(pace, b"1")
    assert not is_barred(pace, b"]")
    pace.push(b"1")
    assert not is_barred(pace, b" " * MAX_WHITESPACE)
    assert is_barred(pace, b" " * (MAX_WHITESPACE + 1))
    assert is_barred(pace, b"," + b" " * 20)


def test_a_run_of_digits_ends(barred):
    pace = after(barred, b"[" + b"7" * 31)
    assert not is_barred(pace, b"0")
    assert is_barred(pace, b"00")
    pace.push(b"7")
    assert is_barred(pace, b"0")
    assert not is_barred(pace, b".")
    pace.push(b".")
    assert not is_barred(pace, b"1" * 31)
    assert is_barred(pace, b"1" * (MAX_DIGITS + 8))


def test_strings_are_free(barred):
    pace = after(barred, b'["' + b"1" * 100 + b" " * 100 + b'\\"')
    assert not is_barred(pace, b"1" * 40)
    assert not is_barred(pace, b" " * 32)
    assert is_barred(pace, b'"' + b" " * 17), "it would end the string and go on too long"
    pace.push(b'"')
    assert is_barred(pace, b" " * 32)


@given(st.lists(st.integers(0, len(TOKENS) - 1), max_size=80))
def test_what_is_not_barred_keeps_to_the_limits(choices):
    barred = Barred((text, token) for token, text in enumerate(TOKENS))
    pace, text = Pace(barred), b""
    for token in choices:
        if not pace.barred >> token & 1:
            pace.push(TOKENS[token])
            text += TOKENS[token]
    whitespace, digits = longest_runs(text)
    assert whitespace <= MAX_WHITESPACE
    assert digits <= MAX_DIGITS


@given(st.binary(max_size=60).map(lambda data: bytes(b'" \\1a'[b % 5] for b in data)), st.data())
def test_pieces_say_what_the_whole_says(text, data):
    barred = Barred((token, at) for at, token in enumerate(TOKENS))
    pieces, rest = Pace(barred), text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.push(rest[:size])
        pieces, rest = pieces.copy(), rest[size:]
    assert pieces.barred == after(barred, text).barred


@pytest.mark.parametrize("loved", [b"\n", b"9"])
def test_a_model_that_pads_comes_to_an_end(matched, barred, loved):
    """Cases of models that love newlines, or digits, in any JSON document at all."""
    numbers = {"type": "array", "items": {"type": "number"}, "minItems": 3}
    needed = {
        "type": "object",
        "properties": {"a": numbers, "b": {}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    for schema in ({"type": "object"}, {}, True, {"type": "array"}, numbers, needed):
        matcher, pace, text = matched(schema, "flexible"), Pace(barred), b""
        while matcher.next_tokens:
            allowed = [byte for byte in range(128) if matcher.next_tokens >> byte & 1]
            free = [byte for byte in allowed if not pace.barred >> LETTERS.get(byte, 99) & 1]
            order = loved + (b'"' if text.count(b'"') % 2 else b'}]":,0')
            liked = [byte for byte in order if byte in free]
            byte = (liked or free or allowed)[0]
            if matcher.accepting and byte not in loved:
                break  # It prefers to end.
            assert matcher.advance(byte)
            pace.push(bytes([byte]))
            text += bytes([byte])
            assert len(text) < 400
        assert matcher.accepting, text
        assert longest_runs(text)[0] <= MAX_WHITESPACE
        assert longest_runs(text)[1] <= MAX_DIGITS


def test_a_step_takes_microseconds_with_a_large_vocabulary():
    tokens = [(b"%d" % n if n % 3 else b" " * (n % 7) + b"x", n) for n in range(49_152)]
    barred = Barred(tokens)
    pace = Pace(barred)
    began = time.perf_counter()
    for _ in range(10_000):
        pace.push(b"12")
        assert pace.barred >= 0
        pace.push(b", ")
        assert pace.barred >= 0
    assert (time.perf_counter() - began) / 20_000 < 50e-6
