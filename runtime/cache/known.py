"""KnownPaths: a bounded memory of paths that were computed and then evicted.

It only keeps the books honest: computing such a path again is `recomputed`, not new work, and a
report can say who made it go. Each token is one 64-bit hash of its whole path, so the memory is
small and forgets the oldest first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ramet.runtime.cache.origin import Origin, Run

EMPTY_PATH = 0


def fold(path_hash: int, ids: Iterable[int]) -> int:
    """The hash of a path continued by `ids`."""
    for token in ids:
        path_hash = hash((path_hash, token))
    return path_hash


class KnownPaths:
    """Hashes of evicted tokens' paths, about the last `limit` of them (a sixteenth more at
    most)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.hashes: dict[int, Origin | None] = {}
        """Path hash of a token → for whose sake it was evicted."""

    def __len__(self) -> int:
        return len(self.hashes)

    def remember(self, path_hash: int, ids: Sequence[int], evictors: Iterable[Run] = ()) -> None:
        """Note `ids`, which follow the hashed path and were computed, and for whose sake they were
        evicted: the last one first, as it is evicted and to be forgotten before those above it."""
        hashes = self.hashes
        fresh = [path_hash := hash((path_hash, token)) for token in ids]
        runs = [*evictors, (len(ids), None)]  # Those of the evictors may be short.
        whose = itertools.chain.from_iterable(itertools.repeat(who, n) for n, who in runs)
        noted = dict(reversed(list(zip(fresh, whose, strict=False))))
        if not hashes.keys().isdisjoint(noted):
            for known in noted:  # They become the newest.
                hashes.pop(known, None)
        hashes.update(noted)
        excess = len(hashes) - self._limit
        if excess > self._limit // 16:
            # Many at once: finding a dict's first entry costs a walk over those deleted before it.
            for oldest in list(itertools.islice(self.hashes, excess)):
                del self.hashes[oldest]

    def lookup(self, path_hash: int, ids: Sequence[int]) -> int:
        """How many of `ids`, which follow the hashed path, were computed before: none after one
        that wasn't."""
        for count, token in enumerate(ids):
            path_hash = hash((path_hash, token))
            if path_hash not in self.hashes:
                return count
        return len(ids)

    def evictor(self, path_hash: int) -> Origin | None:
        """For whose sake the hashed path's last token was evicted; None if that isn't known."""
        return self.hashes.get(path_hash)

    def clear(self) -> None:
        """Forget everything."""
        self.hashes.clear()
