"""Random streams that depend on names, not on order: counter-based, so they never have state.

A stream is a 64-bit key; its element `index` is a hash of (key, index). Two calls with equal keys
draw the same numbers, whatever ran before, beside or between them.
"""

from __future__ import annotations

import hashlib

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def stream_key(seed: int, path: str, call_index: int, sample: int) -> int:
    """The 64-bit key of one sample's stream.

    `seed` is the program's or the call's (any int of 64 bits, negative ones too: -1 and 2**64 - 1
    differ), `path` the branch ("" or "0.3"), `call_index` the call's number on that branch,
    `sample` the completion's number in the call.
    """
    name = f"{seed}|{path}|{call_index}|{sample}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


def uniform(key: int, index: int) -> float:
    """Element `index` (at least 0) of stream `key`: a multiple of 2**-53 in [0, 1).

    SplitMix64 (Steele, Lea & Flood 2014) at counter `index`, its 53 high bits.
    """
    z = (key + (index + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53
