"""Strings by pieces: escapes, split characters, surrogates, and what closes them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.grammar.closing.patterns import search_automata
from ramet.runtime.grammar.closing.shapes import Strings
from ramet.runtime.grammar.closing.text import Text


def shape(low: int = 0, high: int | None = None, pattern: str | None = None) -> Strings:
    automata = () if pattern is None else search_automata(pattern)
    assert automata is not None
    return Strings(low, high, automata)


def read(data: bytes, wanted: Strings) -> Text:
    """Byte by byte, which is the hardest."""
    text = Text(True, wanted.automata, 0)
    for byte in data:
        assert text.take(bytes([byte]), 0) == 1
    return text


def closed(data: bytes, wanted: Strings) -> str:
    """The string that the first proposal makes."""
    value = json.loads(b'"' + data + read(data, wanted).completions(wanted)[0])
    assert isinstance(value, str)
    return value


@pytest.mark.parametrize(
    ("data", "rest"),
    [
        (b"abc", b'"'),
        (b"\\", b'n"'),
        (b"\\u00", b'7f"'),
        (b"\\u004", b'f"'),
        (b"\xc3", b'\x80"'),
        (b"\xf0\x9f", b'\x80\x80"'),
        (b"\xed", b'\x80\x80"'),
        (b"\\ud83d", b'\\udc00"'),
        (b"\\ud83d\\", b'udc00"'),
        (b"\\ud83d\\udc", b'00"'),
        (b"\\ud8", b'00\\udc00"'),
    ],
)
def test_what_is_begun_is_completed(data, rest):
    found = read(data, shape()).completions(shape())
    assert rest in found
    for each in found:
        json.loads(b'"' + data + each)


def test_patterns_and_lengths_are_kept():
    assert closed(b"f", shape(pattern="^(foo|bar)[0-9]{2}$")) == "foo00"
    assert closed(b"ab", shape(5, 7)) == "abaaa"
    assert closed(b"x", shape(6, pattern="^[a-z]+-[0-9]+$")).startswith("x")
    assert closed(b"caf\\u00", shape(pattern="^café$")) == "café"
    assert closed("é".encode()[:1], shape(pattern="^[éa]*$")) == "é"
    assert closed(b"", shape(pattern='^"q"$')) == '"q"'


def test_what_leads_nowhere_is_known():
    wanted = shape(pattern="^ab$")
    assert not read(b"b", wanted).leads_on(wanted)
    assert read(b"b", wanted).completions(wanted) == []
    assert not read(b"abc", shape(0, 2)).leads_on(shape(0, 2))


@given(st.text(max_size=20), st.booleans(), st.data())
def test_pieces_are_counted_as_characters(value, ascii_only, data):
    written = json.dumps(value, ensure_ascii=ascii_only)[1:].encode(errors="surrogatepass")
    wanted = shape(1, 100, "x?$")
    text, at = Text(True, wanted.automata, 1000), 0
    while at < len(written):
        size = data.draw(st.integers(1, len(written) - at))
        at += text.take(written[at : at + size], 0)
        text = text.copy()
    assert text.closed
    assert text.count == len(value)
    assert text.raw == written[:-1]
    assert text.fits(wanted) == (len(value) > 0)
