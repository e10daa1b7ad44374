"""FreeRuns: the free pages, as runs of neighbours.

A chain of tokens is read fastest where its pages are neighbours, as each break is one more item of
attention. So what is free is kept in runs, which join as pages come back, and a new chain begins in
the middle of a long one: both the chain before it and itself have room to grow. Every operation
costs the same whatever the size of the pool (boundary tags, Knuth, TAOCP 1, 2.5; lengths in
classes).
"""

from __future__ import annotations


class FreeRuns:
    """Disjoint runs of pages, no two of which touch."""

    def __init__(self, num_pages: int) -> None:
        self.total = 0
        """Free pages."""
        self._lengths: dict[int, int] = {}
        """First page → number of pages."""
        self._starts: dict[int, int] = {}
        """Page after the last one → first page."""
        self._classes: list[dict[int, None]] = [{} for _ in range(_size_class(num_pages) + 1)]
        """First pages, by the class of the length."""
        self._used = 0
        """A bit for each class that isn't empty."""
        if num_pages:
            self._put(0, num_pages)

    def take_at(self, page: int, want: int) -> int:
        """Take up to `want` pages from `page` on, the page before which is in use; how many."""
        if page not in self._lengths:
            return 0
        count = self._pop(page)
        if count > want:
            self._put(page + want, count - want)
            return want
        return count

    def take(self, want: int) -> tuple[int, int]:
        """Take up to `want` pages of one of the longest runs: the first one, and how many.

        Raises IndexError when nothing is free.
        """
        if not self._used:
            raise IndexError("no page is free")
        start = next(reversed(self._classes[self._used.bit_length() - 1]))
        count = self._pop(start)
        skip = count // 2 if want <= count // 2 else 0
        if skip:
            self._put(start, skip)
        taken = min(want, count - skip)
        if rest := count - skip - taken:
            self._put(start + skip + taken, rest)
        return start + skip, taken

    def give(self, page: int) -> None:
        """Give back one page."""
        start, count = page, 1
        if page in self._starts:
            start = self._starts[page]
            count += self._pop(start)
        if page + 1 in self._lengths:
            count += self._pop(page + 1)
        self._put(start, count)

    def _put(self, start: int, count: int) -> None:
        self._lengths[start] = count
        self._starts[start + count] = start
        kind = _size_class(count)
        self._classes[kind][start] = None
        self._used |= 1 << kind
        self.total += count

    def _pop(self, start: int) -> int:
        count = self._lengths.pop(start)
        del self._starts[start + count]
        kind = _size_class(count)
        some = self._classes[kind]
        del some[start]
        if not some:
            self._used &= ~(1 << kind)
        self.total -= count
        return count


def _size_class(count: int) -> int:
    """Larger for longer runs: exact up to seven, then four classes from each power of two on."""
    shift = max(count.bit_length() - 3, 0)
    return shift << 3 | count >> shift
