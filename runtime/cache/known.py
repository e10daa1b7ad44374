"""KnownPaths: a bounded memory of paths that were computed and then evicted.

It only keeps the books honest: computing such a path again is `recomputed`, not new work. Each
token is one 64-bit hash of its whole path, so the memory is small and forgets the oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EMPTY_PATH = 0


def fold(path_hash: int, ids: Iterable[int]) -> int:
    """The hash of a path continued by `ids`."""
    for token in ids:
        path_hash = hash((path_hash, token))
    return path_hash


class KnownPaths:
    """Hashes of evicted tokens' paths, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._hashes: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def remember(self, path_hash: int, ids: Sequence[int], computed: Sequence[bool]) -> None:
        """Note those of `ids`, which follow the hashed path, that were computed."""
        for token, was in zip(ids, computed, strict=True):
            path_hash = hash((path_hash, token))
            if was:
                self._hashes.pop(path_hash, None)
                self._hashes[path_hash] = None
        while len(self._hashes) > self._limit:
            del self._hashes[next(iter(self._hashes))]

    def lookup(self, path_hash: int, ids: Sequence[int]) -> list[bool]:
        """For each of `ids`, which follow the hashed path: was it computed before?"""
        found: list[bool] = []
        for token in ids:
            path_hash = hash((path_hash, token))
            found.append(path_hash in self._hashes)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._hashes.clear()
