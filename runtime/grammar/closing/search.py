"""Search: a closing text found by trying bytes on a matcher, where the schema's walk found none."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ramet.runtime.grammar.closing.walk import Walk
from ramet.runtime.grammar.matcher import Matcher

MAX_DEPTH = 96
"""Bytes that are searched for; what the walk proposes from there may be longer."""
WIDTH = 8
"""Texts that are followed at once."""
MAX_BYTES = 12
"""Bytes tried after each."""
MAX_STARTS = 4
"""Proposals of the walk that are gone on from."""

MAX_TRIED = 1500
"""Texts tried in all; about 20 microseconds each."""

_ORDER = b'"}])>:,;0123456789.-\\TZaAbcdefghnrtu/@_ {[(<'
_RANK = {byte: rank for rank, byte in enumerate(_ORDER)}

_Way = tuple[bytes, Walk, Matcher]
"""A text, and walk and matcher after it."""


def repaired(walk: Walk, matcher: Matcher, tried: Iterable[bytes]) -> bytes | None:
    """A closing that begins like one of some texts that the matcher took, or not; None if none is
    found. The work is bounded by MAX_TRIED."""
    starts = sorted(dict.fromkeys(tried), key=len, reverse=True)[:MAX_STARTS]
    ways: list[_Way] = []
    for text in dict.fromkeys([*starts, b""]):
        way = _after((b"", walk, matcher), text)
        if way is not None:
            ways.append(way)
    tried_texts = 0
    for _ in range(MAX_DEPTH):
        for text, there, state in ways:
            rest = _closing(there, state)
            if rest is not None:
                return text + rest
        if tried_texts > MAX_TRIED:
            break
        longer = _longer(ways)
        tried_texts += len(longer)
        ways = _different(longer)
    return None


def _after(way: _Way, more: bytes) -> _Way | None:
    text, walk, matcher = way
    matcher = matcher.copy()
    for byte in more:
        if not matcher.advance(byte):
            return None
    walk = walk.copy()
    walk.push(more)
    return text + more, walk, matcher


def _closing(walk: Walk, matcher: Matcher) -> bytes | None:
    """What the walk proposes, if the matcher takes it."""
    if matcher.accepting:
        return b""
    for text in islice(walk.closings(), 3):
        taken = 0
        for byte in text:
            if not matcher.advance(byte):
                break
            taken += 1
        accepted = taken == len(text) and matcher.accepting
        matcher.rollback(taken)
        if accepted:
            return text
    return None


def _longer(ways: list[_Way]) -> list[_Way]:
    """The most promising texts with one byte more."""
    found: list[_Way] = []
    for way in ways:
        bits = way[2].next_tokens
        allowed = sorted(
            (byte for byte in range(256) if bits >> byte & 1),
            key=lambda byte: _RANK.get(byte, byte),
        )
        for byte in allowed[:MAX_BYTES]:
            after = _after(way, bytes([byte]))
            if after is not None:
                found.append(after)
    return found


def _different(ways: list[_Way]) -> list[_Way]:
    """The first of some texts, no two that go on alike."""
    found: dict[tuple[int, int, bool], _Way] = {}
    for way in ways:
        found.setdefault((way[0][-1], way[2].next_tokens, way[1].in_string), way)
    return list(found.values())[:WIDTH]
