from ramet.runtime.cache.audit import audit, audit_idle
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.schedule.policy import make_policy
from ramet.runtime.schedule.scheduler import Scheduler
from ramet.runtime.schedule.sequence import Sequence


class Rig:
    """A scheduler whose sequences only want their paths computed."""

    def __init__(self, pages: int = 32, page_size: int = 4, chunk: int = 16, running: int = 8):
        self.tree = RadixTree(PagePool(pages, page_size))
        self.scheduler = Scheduler(
            self.tree, make_policy("fcfs", 1), chunk_tokens=chunk, max_running=running
        )
        self.arrival = 0

    def add(self, ids: list[int], priority: int = 0) -> Sequence:
        self.arrival += 1
        node = self.tree.extend(self.tree.root(), ids)
        self.tree.demand(node)
        sequence = Sequence(node, self.arrival, priority, self.arrival)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> list[Sequence]:
        batch = self.scheduler.plan()
        assert len(batch.token_ids) <= self.scheduler.chunk_tokens
        audit(self.tree, in_flight=True)
        self.scheduler.commit(batch)
        audit(self.tree)
        return list(batch.ready)


def test_prefill_runs_in_chunks_within_the_budget():
    rig = Rig(chunk=16)
    sequence = rig.add(list(range(40)))
    assert [rig.step(), rig.step(), rig.step()] == [[], [], [sequence]]
    assert rig.tree.edge_tokens == 40


def test_decode_rows_come_first():
    rig = Rig(chunk=8)
    first = rig.add([1])
    rig.step()
    rig.add(list(range(100, 130)))
    first.node = rig.tree.extend(first.node, [2], 4, running=True)
    batch = rig.scheduler.plan()
    assert len(batch.token_ids) == 8
    assert first in batch.ready
    rig.scheduler.commit(batch)


def test_a_shared_edge_is_planned_once_for_all_that_wait():
    rig = Rig(chunk=64)
    waiting = [rig.add([1, 2, 3, 4, 10 + i]) for i in range(5)]
    assert rig.step() == waiting
    assert rig.tree.edge_tokens == 9


def test_no_more_run_than_have_rows():
    rig = Rig(chunk=2, running=8)
    for i in range(5):
        rig.add([i])
    rig.step()
    assert len(rig.scheduler.running) == 2
    assert rig.scheduler.num_waiting == 3


def test_the_last_in_order_gives_way_and_comes_back():
    rig = Rig(pages=4, page_size=4, chunk=16)
    first, second = rig.add([1] * 8), rig.add([2] * 8)
    rig.step()
    assert len(rig.scheduler.running) == 2
    first.node = rig.tree.extend(first.node, [7], 4, running=True)
    assert rig.step() == [first]
    assert not second.running
    assert rig.scheduler.retractions == 1
    rig.scheduler.finish(first)
    while not second.node.complete:
        rig.step()
    rig.scheduler.finish(second)
    assert rig.tree.recomputed_tokens > 0
    audit_idle(rig.tree)


def test_a_failed_step_gives_its_slots_back():
    rig = Rig()
    sequence = rig.add([1, 2, 3])
    batch = rig.scheduler.plan()
    rig.scheduler.rollback(batch)
    audit(rig.tree)
    rig.scheduler.finish(sequence)
    audit_idle(rig.tree)
    assert rig.tree.pool.free_pages == rig.tree.pool.num_pages


def test_a_lone_sequence_that_outgrows_the_pool_is_named():
    rig = Rig(pages=2, page_size=4)
    sequence = rig.add([1] * 8)
    rig.step()
    sequence.node = rig.tree.extend(sequence.node, [2], 4, running=True)
    assert rig.step() == []
    assert rig.scheduler.outgrown == [sequence]


def test_a_fragmented_path_is_laid_out_afresh():
    rig = Rig(pages=2, page_size=4, chunk=16)
    sequence = rig.add([1, 2, 3])
    rig.step()
    other = rig.add([1, 2, 3, 9])  # takes the rest of the page
    rig.step()
    rig.scheduler.finish(other)
    for token in (4, 5, 6, 7, 8):
        sequence.node = rig.tree.extend(sequence.node, [token], 4, running=True)
        while not sequence.node.complete:
            rig.step()
            assert not rig.scheduler.outgrown
    assert sequence.node.path_ids() == [1, 2, 3, 4, 5, 6, 7, 8]


def decoding(rig: Rig, count: int) -> list[Sequence]:
    """Sequences that have decoded once, each on an edge of its own."""
    sequences = [rig.add([100 + i]) for i in range(count)]
    rig.step()
    grow(rig, sequences)
    rig.step()
    return sequences


def grow(rig: Rig, sequences: list[Sequence]) -> None:
    """Each samples a token."""
    for sequence in sequences:
        if sequence.running:
            sequence.node = rig.tree.extend(sequence.node, [7], 4, running=True)


def test_a_step_like_the_last_one_is_planned_as_any_other():
    rigs = [Rig(pages=32, chunk=8) for _ in range(2)]
    found = []
    for rig in rigs:
        sequences = decoding(rig, 5)
        for _ in range(10):
            grow(rig, sequences)
            if rig is rigs[1]:
                rig.scheduler._decoding = ()  # Nothing is taken from the last step.
            batch = rig.scheduler.plan()
            audit(rig.tree, in_flight=True)
            assert batch.last_slots == [s.node.last_slot() for s in batch.ready]
            rig.scheduler.commit(batch)
            found.append((batch.token_ids, batch.positions, batch.slots, batch.items))
        audit(rig.tree)
    assert found[:10] == found[10:]


def test_a_step_like_the_last_one_that_finds_no_page_lets_the_last_in_order_wait():
    rig = Rig(pages=4, page_size=4, chunk=8)
    sequences = decoding(rig, 3)
    for _ in range(7):
        grow(rig, sequences)
        rig.step()
    assert rig.scheduler.retractions
    assert [s.running for s in sequences] == [True, False, False]
    for sequence in sequences:
        rig.scheduler.finish(sequence)
    audit_idle(rig.tree)
