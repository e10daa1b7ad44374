"""All JSON spellings of a language's texts, and no other."""

from __future__ import annotations

import json

import pytest
from documents import taken

from ramet.runtime.grammar import charset
from ramet.runtime.grammar.json_schema.language import (
    CHARACTER,
    EVERY,
    Chars,
    Language,
    Words,
    all_of,
    not_,
    repeat,
)
from ramet.runtime.grammar.json_schema.spelling import Terminals


def accepted(language: Language, texts: list[str]) -> list[str]:
    terminals = Terminals()
    return taken(terminals, terminals.string(language), texts)


def spelled(character: str) -> list[str]:
    """All the ways to write one character."""
    units = character.encode("utf-16-be")
    codes = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
    escaped = ["".join(f"\\u{f(code)}" for code in codes) for f in (str.lower, str.upper)]
    found = {json.dumps(character, ensure_ascii=False), *(f'"{text}"' for text in escaped)}
    return sorted(found | ({'"\\/"'} if character == "/" else set()))


SAMPLE = [
    *'a"\\/\n\x00\x7fé',
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0001f600",
    "\U0010ffff",
]


@pytest.mark.parametrize(
    "ranges",
    [
        ((97, 97),),
        ((0, 0x2F),),
        ((0xE9, 0xD7FF), (0xE000, 0x10000)),
        ((0x1F5FF, 0x1F600),),
        ((0x10400, 0x10FFFF),),
        charset.category(r"\w", 32),
        charset.EVERYTHING,
        (),
    ],
)
def test_characters_in_every_spelling(ranges: charset.Ranges):
    for character in SAMPLE:
        texts = spelled(character)
        inside = any(first <= ord(character) <= last for first, last in ranges)
        assert accepted(Chars(ranges), texts) == (texts if inside else [])
        others = accepted(all_of((CHARACTER, not_(Chars(ranges)))), texts)
        assert others == ([] if inside else texts)


def test_lone_surrogates_are_no_text():
    texts = ['"\\ud83d"', '"\\ude00"', '"\\ude00\\ud83d"', '"\\uD83Da"', '"\\ud83d\\u0061"']
    assert accepted(EVERY, [*texts, '"\\ud83d\\ude00"']) == ['"\\ud83d\\ude00"']


def test_words_are_asked_for_plainly_but_excluded_in_every_spelling():
    texts = ['"a"', '"\\u0061"', '"é"', '"\\u00e9"', '"b"']
    assert accepted(Words(("a", "é")), texts) == ['"a"', '"é"']
    assert accepted(not_(Words(("a", "é"))), texts) == ['"b"']


def test_lengths_count_characters():
    texts = ['"ab"', '"a"', '"\\u0061\\n"', '"\U0001f600\\ud83d\\ude00"', '"abc"']
    assert accepted(repeat(CHARACTER, 2, 2), texts) == [texts[0], texts[2], texts[3]]
