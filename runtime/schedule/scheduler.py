"""Scheduler: chooses what each step computes; admits, retracts and makes room.

The unit of prefill work is a planned edge of the tree, so two sequences that wait for the same
edge cost it once, and a decode row is a planned edge of one token. Only running sequences pin
pages. Continuous batching after Orca (Yu et al. 2022), chunked prefill mixed with decodes after
Sarathi-Serve (Agrawal et al. 2024).
"""

from __future__ import annotations

import bisect
import dataclasses
import time
from collections.abc import Callable
from operator import attrgetter

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.schedule.batch import Batch, Layout, build_batch
from ramet.runtime.schedule.lengths import FinishLengths
from ramet.runtime.schedule.policy import Policy
from ramet.runtime.schedule.sequence import Generation, Sequence
from ramet.runtime.schedule.step_budget import StepBudget
from ramet.runtime.schedule.switches import ALL_ON, Switches
from ramet.runtime.schedule.waiting import Waiting, uncached_tokens

LOOKAHEAD_TOKENS = 256
"""Most tokens of a sequence's expected growth that admission keeps room for."""

_order = attrgetter("order")


class Scheduler:
    """Who waits, who runs (in the order of retraction, the last one first), the plan of a step."""

    def __init__(
        self,
        tree: RadixTree,
        policy: Policy,
        *,
        chunk_tokens: int,
        max_running: int,
        budget: StepBudget | None = None,
        switches: Switches = ALL_ON,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tree = tree
        self.pool = tree.pool
        self.policy = policy
        self.switches = switches
        self.clock = clock
        self.chunk_tokens = chunk_tokens
        self.max_running = min(max_running, chunk_tokens)
        """Each running sequence may need a row, and a step has at most `chunk_tokens` rows."""
        self.budget = budget
        """What bounds the rows of prompts beside decodes; None is `chunk_tokens` alone."""
        self.running: list[Sequence] = []
        self.retractions = 0
        self.outgrown: list[Sequence] = []
        """Running sequences whose own path has outgrown the whole pool; the engine ends them."""
        self.lengths = FinishLengths()
        """How long generations turn out to be."""
        self._wave = 0
        """Counts plans: whoever is queued between two of them comes in one wave."""
        self._waiting = Waiting()
        self._layout: Layout | None = None
        self._decoding: tuple[Sequence, ...] = ()
        """Who all had a row of their own, and one only, in the step that `_layout` is of."""
        self._cursor: Node | None = None
        """Where the last sequence was admitted."""

    @property
    def num_waiting(self) -> int:
        """Sequences that wait to run."""
        return len(self._waiting)

    @property
    def reserved_pages(self) -> int:
        """Pages that nobody fills yet and nobody else may have; none, but with paging off."""
        return 0 if self.switches.paged else sum(map(self._growth_pages, self.running))

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, whose reference to its node the scheduler now looks after."""
        sequence.wave = self._wave
        sequence.order = (-sequence.priority, sequence.program, sequence.arrival)
        self._wait(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out, running or waiting, and let go of its path."""
        if not sequence.alive:
            return
        sequence.alive = False
        if sequence.running:
            self._stop(sequence)
        else:
            self._waiting.remove(sequence)
            self.tree.queue.offer(sequence.node)
        if (
            isinstance(sequence, Generation)
            and sequence.place is not None
            and sequence.output.finished is not None
        ):
            self.lengths.record(sequence.place.origin.site, len(sequence.output_ids))
            sequence.place.context.program.attained_tokens += len(sequence.output_ids)
        self.tree.release(sequence.node)

    def plan(self) -> Batch:
        """The next step's batch, its slots reserved; empty when there is nothing to do."""
        self._wave += 1
        self._admit()
        self.tree.queue.crowded = len(self._waiting) > 0
        batch = self._go_on() or self._fill()
        while not batch and self.running and not self.outgrown:
            self._unblock()
            batch = self._fill()
        return batch

    def plan_ahead(self, waiting: frozenset[Sequence]) -> Batch | None:
        """The batch of the step after one whose tokens aren't known yet: who has a token planned
        (`Expected`) goes on, those `waiting` for theirs don't. None, and no slot is taken, where
        there is nothing to do, or somebody would have to be retracted.
        """
        self._wave += 1
        self._admit()
        # Where edges begin in one page, only the first of them gets its rest.
        pages = sum(
            not s.node.segments or not self.pool.room_after(s.node.last_slot())
            for s in self.running
        )
        if not self.running or not self._room(pages, self.running[-1]):
            return None
        self.tree.queue.crowded = len(self._waiting) > 0
        batch = self._go_on() or self._fill()
        # Their paths are computed, but their tokens are being drawn already.
        ready = tuple(s for s in batch.ready if s not in waiting)
        return dataclasses.replace(batch, ready=ready) or None

    def commit(self, batch: Batch) -> None:
        """The batch has been computed."""
        self.tree.commit(batch.ranges)

    def took(self, batch: Batch, seconds: float) -> None:
        """How long the step of a batch took, from its plan to its tokens."""
        if self.budget is not None and batch.ranges:
            rows = len(batch.token_ids)
            self.budget.note(rows - batch.prefill_rows, batch.prefill_rows, seconds)

    def rollback(self, batch: Batch) -> None:
        """The batch failed: its slots come back."""
        self._layout = None
        for node, _ in reversed(batch.ranges):
            self.tree.cancel_reserved(node)

    # Admission and retraction

    def _wait(self, sequence: Sequence) -> None:
        self._waiting.lane_of(sequence).add(sequence, self.policy.key(sequence))

    def _admit(self) -> None:
        if self.running and not self.switches.continuous:
            return
        promised = -1
        while len(self.running) < self.max_running and (lane := self._waiting.top()) is not None:
            sequence = self.policy.choose(lane, self._cursor)
            if promised < 0:
                promised = self._promised_pages()
            planned, pinned = self._pages_of(sequence)
            growth = self._growth_pages(sequence)
            wanted = promised + planned + pinned + growth
            if self.running and wanted > self.pool.free_pages + self.pool.cached_pages:
                return
            promised += planned + growth
            tokens = uncached_tokens(sequence.node)
            self._waiting.remove(sequence, max(tokens, 1))
            self._cursor = sequence.node
            if sequence.place is not None:
                sequence.place.context.program.attained_tokens += tokens
            self._start(sequence)

    def _start(self, sequence: Sequence) -> None:
        sequence.running = True
        if sequence.started is None:
            sequence.started = self.clock()
        self.tree.hold(sequence.node)
        bisect.insort(self.running, sequence, key=_order)

    def _stop(self, sequence: Sequence) -> None:
        sequence.running = False
        self.running.remove(sequence)
        self.tree.unhold(sequence.node)

    def _promised_pages(self) -> int:
        """Pages that the running sequences' planned tokens and expected growth will take."""
        size = self.pool.page_size
        pages = sum(map(self._growth_pages, self.running))
        planned: set[Node] = set()
        for sequence in self.running:
            node: Node | None = sequence.node
            while node is not None and (missing := len(node.tokens) - node.computed):
                if node in planned:
                    break
                planned.add(node)
                pages += -(-missing // size)
                node = node.parent
        return pages

    def _growth_pages(self, sequence: Sequence) -> int:
        """Pages that a sequence is expected to grow by, as far ahead as admission looks."""
        if not isinstance(sequence, Generation):
            return 0
        site = "" if sequence.place is None else sequence.place.origin.site
        done = len(sequence.output_ids)
        if not self.switches.paged:
            return -(-(sequence.limit - done) // self.pool.page_size)
        tokens = min(self.lengths.remaining(site, done, sequence.limit), LOOKAHEAD_TOKENS)
        return -(-tokens // self.pool.page_size)

    def _pages_of(self, sequence: Sequence) -> tuple[int, int]:
        """Pages that running this sequence would newly take, and newly pin."""
        size = self.pool.page_size
        planned = pinned = 0
        for node in sequence.node.ancestors():
            if node.held:
                break
            planned += -(-(len(node.tokens) - node.computed) // size)
            pinned += sum(len(self.pool.pages_of(segment)) for segment in node.segments)
        return planned, pinned

    def _retract(self, sequence: Sequence) -> None:
        """Send a running sequence back to wait; what it computed stays as cache."""
        self.retractions += 1
        self._stop(sequence)
        self._wait(sequence)

    def _unblock(self) -> None:
        """Nothing could move: the last in order gives way; a lone one is laid out afresh."""
        if len(self.running) > 1:
            self._retract(self.running[-1])
            return
        (sequence,) = self.running
        if -(-sequence.node.end // self.pool.page_size) > self.pool.num_pages:
            self.outgrown.append(sequence)
            return
        self._stop(sequence)
        emptied = self.tree.evict(self.pool.num_pages, sequence.origin)
        self._start(sequence)
        if not emptied:
            raise AssertionError("pages are in use that nothing runs on and nothing can free")

    def _room(self, pages: int, sequence: Sequence) -> bool:
        return self.pool.free_pages >= pages or self.tree.evict(pages, sequence.origin)

    # Filling a batch

    def _fill(self) -> Batch:
        """Decode rows first, then chunks of planned edges in policy order.

        Everybody who decodes has a row, or is retracted: nobody's next token waits longer than one
        step, and what a step has beside decodes is bounded by `budget`.
        """
        ranges: dict[Node, int] = {}
        slots: list[int] = []
        prefills: list[Sequence] = []
        take_next = self.pool.take_next
        stalled = not self.switches.stall_free and any(map(_prefills, self.running))
        for sequence in list(self.running):
            if not sequence.running:
                continue
            node = sequence.node
            missing = len(node.tokens) - node.computed
            if missing > 1 or not (node.computed or _complete_above(node)):
                prefills.append(sequence)
            elif missing and node not in ranges and not stalled:
                slot = take_next(node.segments)
                if slot < 0:
                    slot = self._decode(sequence, node)
                if slot >= 0:
                    ranges[node] = 1
                    slots.append(slot)
        prefills = [sequence for sequence in prefills if sequence.running]
        left = self.chunk_tokens - len(ranges)
        if self.budget is not None and not stalled and 0 < len(prefills) < len(self.running):
            left = min(left, self.budget.prefill_rows(len(ranges)))
        prefill_rows = 0
        for sequence in prefills:
            if sequence.running and left > prefill_rows:
                prefill_rows += self._prefill(sequence, left - prefill_rows, ranges)
        if not prefills:
            return self._decodes(list(ranges), slots)
        self._layout = None  # It is one step behind from here on.
        ready = [s for s in self.running if _done_after(s.node, ranges)]
        order = sorted(ranges.items(), key=lambda pair: pair[0].start)
        return build_batch(order, ready, prefill_rows)

    def _go_on(self) -> Batch | None:
        """The batch of a step like the last one: the same run, each has one token more to decode in
        a row of its own, and there is room for all. None, and nothing is done, if it isn't one."""
        running = tuple(self.running)
        if self._layout is None or not running or running != self._decoding:
            return None
        nodes = [sequence.node for sequence in running]
        if not self._layout.fits(nodes, self.tree.version) or [
            node for node in nodes if len(node.tokens) - node.computed != 1
        ]:
            return None
        slots = self.pool.take_each([node.segments for node in nodes])
        for index in [i for i, slot in enumerate(slots) if slot < 0]:
            node = nodes[index]
            if not self._room(1, running[index]):
                for other, slot in zip(nodes, slots, strict=True):
                    if slot >= 0:
                        self.tree.cancel_reserved(other)
                return None
            self.tree.reserve(node, 1)
            slots[index] = node.last_slot()
        return self._decodes(nodes, slots)

    def _decodes(self, nodes: list[Node], slots: list[int]) -> Batch:
        """The batch of a step in which each row is the last token of a path."""
        version = self.tree.version
        if self._layout is None or not self._layout.advance(nodes, slots, version):
            self._layout = Layout([(node, 1) for node in nodes], version)
        if len(nodes) == len(self.running):
            self._decoding = tuple(self.running)
            return self._layout.batch(self._decoding, last_slots=slots)
        # Some share a row or are complete already; who found no slot waits for the next step.
        own = set(nodes)
        ready = [s for s in self.running if s.node in own or s.node.complete]
        self._decoding = ()
        return self._layout.batch(ready)

    def _decode(self, sequence: Sequence, node: Node) -> int:
        """Take the slot of one decode row, retracting from the end of the order until there is one;
        -1 if the sequence itself has to wait."""
        pages = self.pool.pages_for(node.last_slot(), 1)
        while not self._room(pages, sequence):
            victim = self.running[-1]
            if victim is sequence:
                if len(self.running) > 1:
                    self._retract(victim)
                return -1
            self._retract(victim)
        self.tree.reserve(node, 1)
        return node.last_slot()

    def _prefill(self, sequence: Sequence, budget: int, ranges: dict[Node, int]) -> int:
        """Plan as much of a sequence's missing path as budget and pool allow; returns rows."""
        used = 0
        for node in sequence.node.missing():
            missing = len(node.tokens) - node.computed
            if node not in ranges:
                count = min(missing, budget - used)
                slot = node.last_slot()
                if not self._room(self.pool.pages_for(slot, count), sequence):
                    count = min(count, self.pool.most_after(slot))
                if not count:
                    break
                self.tree.reserve(node, count)
                ranges[node] = count
                used += count
            if ranges[node] < missing:
                break
        return used


def _prefills(sequence: Sequence) -> bool:
    """Whether a sequence misses more than the token that it would decode from."""
    node = sequence.node
    return len(node.tokens) - node.computed > 1 or not _complete_above(node)


def _done_after(node: Node, ranges: dict[Node, int]) -> bool:
    """Whether every token of the path to a node is computed once the ranges are."""
    step: Node | None = node
    while step is not None and (missing := len(step.tokens) - step.computed):
        if ranges.get(step) != missing:
            return False
        if step.computed:
            return True  # and so is all above it
        step = step.parent
    return True


def _complete_above(node: Node) -> bool:
    """Whether every token of the path before the node is computed."""
    return node.computed > 0 or node.parent is None or node.parent.complete
