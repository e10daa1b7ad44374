"""PagePool: the ledger of KV pages, in integers only.

A page is `page_size` consecutive slots; a slot holds one token's K, V and hidden row.
Slots of one page are handed out bottom-up and always continue the token in the slot below, so a
page belongs to one chain of the tree; slots are given back tail first, so what comes back is
always the top of a page, and a page is free exactly when its fill is zero. That is why sharing is
exact to the token at every page size: two nodes may meet inside a page, and the page is freed
with the last of them, with no reference count.

Where pages are of even size, tokens at even positions have even slots, so that kernels may take
keys in pairs: a chain that branches off at an odd position leaves out a slot of its first page.
"""

from __future__ import annotations

from collections.abc import Iterable

from ramet.runtime.cache.free_runs import FreeRuns
from ramet.runtime.errors import PoolTooSmall

Segment = tuple[int, int]
"""(first slot, number of consecutive slots)."""


class PagePool:
    """Fixed pages of slots: a free list, a fill and a hold count per page.

    Invariant: `free + cached + held = num_pages`, where held pages have a slot of a held node.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._fill = [0] * num_pages
        self._left_out = bytearray(num_pages)
        """Slots at the start of the page that nobody has; they count as filled."""
        self._holds = [0] * num_pages
        self._free = FreeRuns(num_pages)
        self.held_pages = 0

    @property
    def free_pages(self) -> int:
        """Pages that nobody uses."""
        return self._free.total

    @property
    def cached_pages(self) -> int:
        """Pages in use by nothing that runs: what eviction can free."""
        return self.num_pages - self._free.total - self.held_pages

    def room_after(self, slot: int) -> int:
        """Slots that a token chain ending in `slot` (-1: none) may still take in the same page."""
        if slot < 0:
            return 0
        page, offset = divmod(slot, self.page_size)
        return self.page_size - offset - 1 if self._fill[page] == offset + 1 else 0

    def pages_for(self, slot: int, count: int) -> int:
        """Fresh pages that `take(slot, count)` would use."""
        here = self.room_after(slot)
        if count <= here:
            return 0
        return -(-(count - here + self._leaves_out(slot + here)) // self.page_size)

    def most_after(self, slot: int) -> int:
        """Most slots that `take(slot, count)` could hand out."""
        here = self.room_after(slot)
        fresh = self._free.total * self.page_size - self._leaves_out(slot + here)
        return here + max(fresh, 0)

    def _leaves_out(self, slot: int) -> int:
        """Slots that a fresh page after `slot` begins with and that stay empty."""
        return (slot + 1) % 2 if self.page_size % 2 == 0 else 0

    def take_next(self, chain: list[Segment]) -> int:
        """Let a chain grow by the slot after its last one, and return it; -1, and nothing is done,
        where that takes a fresh page."""
        if not chain:
            return -1
        start, count = chain[-1]
        slot = start + count
        page = slot // self.page_size
        offset = slot - page * self.page_size
        if not offset or self._fill[page] != offset:
            return -1
        self._fill[page] = offset + 1
        chain[-1] = (start, count + 1)
        return slot

    def take_each(self, chains: Iterable[list[Segment]]) -> list[int]:
        """`take_next` of each of these chains, none of which is empty."""
        fill, size = self._fill, self.page_size
        slots: list[int] = []
        for chain in chains:
            start, count = chain[-1]
            slot = start + count
            offset = slot % size
            page = slot // size
            if offset and fill[page] == offset:
                fill[page] = offset + 1
                chain[-1] = (start, count + 1)
                slots.append(slot)
            else:
                slots.append(-1)
        return slots

    def take(self, slot: int, count: int) -> list[Segment]:
        """Hand out `count` slots that continue the chain ending in `slot` (-1 starts one).

        The first chain to continue takes the rest of the page; later ones start a fresh page.
        Adjacent pages are preferred, so that segments stay few (`FreeRuns`). Raises PoolTooSmall,
        taking nothing, when too few pages are free.
        """
        free, size = self._free, self.page_size
        if self.pages_for(slot, count) > free.total:
            raise PoolTooSmall(f"{count} slots asked of {free.total} free pages")
        here = min(count, self.room_after(slot))
        segments: list[Segment] = []
        if here:
            self._fill[slot // self.page_size] += here
            segments.append((slot + 1, here))
            count -= here
            slot += here
        first = slot // size + 1
        while count > 0:
            skip = self._leaves_out(slot)
            want = -(-(count + skip) // size)
            pages = free.take_at(first, want) if slot >= 0 else 0
            if not pages:
                first, pages = free.take(want)
            filled = min(count + skip, pages * size)
            full = filled // size
            self._fill[first : first + full] = [size] * full
            if full < pages:
                self._fill[first + full] = filled - full * size
            self._left_out[first] = skip
            append_segment(segments, (first * size + skip, filled - skip))
            count -= filled - skip
            slot = first * size + filled - 1
            first += pages
        return segments

    def give_back(self, segment: Segment) -> None:
        """Take back slots, which must be the top of their pages (tail first)."""
        start, count = segment
        while count:
            last = start + count - 1
            page, offset = divmod(last, self.page_size)
            here = min(count, offset + 1 - self._left_out[page])
            if self._fill[page] != offset + 1:
                raise AssertionError(f"slot {last} is given back below the top of its page")
            self._fill[page] -= here
            if self._fill[page] == self._left_out[page]:
                self._fill[page] = self._left_out[page] = 0
                if self._holds[page]:
                    raise AssertionError(f"page {page} is freed while held")
                self._free.give(page)
            count -= here

    def hold(self, pages: range) -> None:
        """One more held node has slots in these pages."""
        for page in pages:
            self._holds[page] += 1
            if self._holds[page] == 1:
                self.held_pages += 1

    def unhold(self, pages: range) -> None:
        """One held node fewer has slots in these pages."""
        for page in pages:
            self._holds[page] -= 1
            if not self._holds[page]:
                self.held_pages -= 1

    def pages_of(self, segment: Segment) -> range:
        """The pages a segment touches."""
        start, count = segment
        return range(start // self.page_size, (start + count - 1) // self.page_size + 1)

    def fill_of(self, page: int) -> int:
        """Slots in use in a page."""
        return self._fill[page] - self._left_out[page]

    def holds_of(self, page: int) -> int:
        """Held nodes with slots in a page."""
        return self._holds[page]


def append_segment(segments: list[Segment], segment: Segment) -> None:
    """Append, joining with the last one where the slots are consecutive."""
    if segments and segments[-1][0] + segments[-1][1] == segment[0]:
        segments[-1] = (segments[-1][0], segments[-1][1] + segment[1])
    elif segment[1]:
        segments.append(segment)


def split_segments(segments: list[Segment], count: int) -> tuple[list[Segment], list[Segment]]:
    """The first `count` slots, and the rest."""
    head: list[Segment] = []
    tail: list[Segment] = []
    for start, length in segments:
        here = min(length, count)
        if here:
            head.append((start, here))
        if here < length:
            tail.append((start + here, length - here))
        count -= here
    return head, tail
