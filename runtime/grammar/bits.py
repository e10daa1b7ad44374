"""Sets of tokens as ints: bit `i` stands for token `i`."""

from __future__ import annotations

from collections.abc import Iterable


def bits_of(tokens: Iterable[int]) -> int:
    """A set of tokens as bits."""
    found = bytearray()
    for token in tokens:
        byte = token // 8
        if byte >= len(found):
            found.extend(bytes(byte + 1 - len(found)))
        found[byte] |= 1 << token % 8
    return int.from_bytes(found, "little")
