import random

import pytest

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.origin import Origin
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.schedule.context import Context, Place, Program
from ramet.runtime.schedule.policy import Policy, make_policy
from ramet.runtime.schedule.sequence import Sequence
from ramet.runtime.schedule.waiting import Waiting, uncached_tokens


class Queue:
    """Sequences that wait in a tree, and a policy that takes them."""

    def __init__(self, policy: str, max_overtakes: int = 10**9) -> None:
        self.tree = RadixTree(PagePool(4096, 4))
        self.policy: Policy = make_policy(policy, max_overtakes)
        self.waiting = Waiting()
        self.cursor: Node | None = None
        self.arrivals = 0

    def add(
        self, ids: list[int], program: int = 0, priority: int = 0, wave: int | None = None
    ) -> Sequence:
        """One more that waits for a path, in a wave of its own if none is given."""
        node = self.tree.extend(self.tree.root(), ids)
        self.tree.demand(node)
        self.arrivals += 1
        sequence = Sequence(node, program, priority, self.arrivals)
        sequence.wave = self.arrivals if wave is None else wave
        self.waiting.lane_of(sequence).add(sequence, self.policy.key(sequence))
        return sequence

    def compute(self, node: Node) -> None:
        """What a step would do: the path is computed."""
        self.tree.hold(node)
        for step in node.missing():
            count = len(step.tokens) - step.computed
            self.tree.reserve(step, count)
            self.tree.commit([(step, count)])
        self.tree.unhold(node)

    def take(self, compute: bool = True) -> Sequence:
        """The next one."""
        lane = self.waiting.top()
        assert lane is not None
        sequence = self.policy.choose(lane, self.cursor)
        self.waiting.remove(sequence, max(uncached_tokens(sequence.node), 1))
        self.cursor = sequence.node
        if compute:
            self.compute(sequence.node)
        return sequence

    def order(self) -> list[int]:
        """The arrivals of all that wait, in the order in which they are taken."""
        return [self.take().arrival for _ in range(len(self.waiting))]


A, B = [1, 1, 1, 1], [2, 2, 2, 2]
MIXED = [[*A, 5], [*B, 6], [*A, 7], [*B, 8], [*A, 9]]


def test_fcfs_goes_by_arrival() -> None:
    queue = Queue("fcfs")
    for ids in MIXED:
        queue.add(ids)
    assert queue.order() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("policy", ["dfs", "program", "lpm"])
def test_the_others_finish_a_subtree_before_the_next(policy: str) -> None:
    queue = Queue(policy)
    for ids in MIXED:
        queue.add(ids)
    assert queue.order() == [1, 3, 5, 2, 4]


def test_dfs_begins_with_the_largest_subtree() -> None:
    queue = Queue("dfs")
    for ids in [[*B, 6], [*A, 7], [*A, 9], [*B, 8], [*A, 5]]:
        queue.add(ids)
    assert queue.order() == [2, 3, 5, 1, 4]


def test_the_oldest_program_goes_first_where_nothing_is_shared() -> None:
    queue = Queue("program")
    for program, ids in ((2, [3]), (1, [4]), (2, [5]), (0, [6])):
        queue.add(ids, program)
    assert queue.order() == [4, 2, 1, 3]


@pytest.mark.parametrize("policy", ["dfs", "fcfs", "lpm", "program"])
def test_higher_priorities_go_first(policy: str) -> None:
    queue = Queue(policy)
    queue.add([*A, 1], priority=-1)
    queue.add([*A, 2], priority=3)
    queue.add([*B, 3])
    queue.add([*A, 4], priority=3)
    assert queue.order() == [2, 4, 3, 1]


def test_what_is_cached_goes_first_while_it_is_there() -> None:
    queue = Queue("program")
    queue.compute(queue.tree.extend(queue.tree.root(), [*A, 1, 2]))
    queue.add([*B, 1], program=0)
    queue.add([*B, 2], program=1)
    queue.add([*A, 1, 2, 3], program=2)
    queue.add([*A, 9], program=3)
    assert queue.order() == [3, 4, 1, 2]


def test_among_equals_the_program_that_has_had_least_goes_first() -> None:
    queue = Queue("program")
    one, other = queue.add([1], program=0), queue.add([2], program=1)
    for sequence, attained in ((one, 100_000), (other, 0)):
        program = Program(0, 0, 0, None, True, attained_tokens=attained)
        place = Place(Context(0, program, ""), Origin("a:1", "p", 0, ""))
        sequence.place = place
        lane = queue.waiting.top()
        assert lane is not None
        lane.rekey(sequence, queue.policy.key(sequence))
    assert queue.order() == [2, 1]


def test_no_more_than_so_many_tokens_pass_the_oldest() -> None:
    queue = Queue("program", max_overtakes=10)
    queue.add([*A, 0])
    queue.take()
    queue.add([*B, *B])  # The cold one: nothing of it is cached.
    for i in range(1, 100):
        queue.add([*A, i])
    # Each hot one costs one token.
    assert queue.order()[:12] == [*range(3, 13), 2, 13]


def test_a_batch_that_came_at_once_is_ordered_freely() -> None:
    queue = Queue("program", max_overtakes=1)
    for ids in MIXED:
        queue.add(ids, wave=7)
    assert queue.order() == [1, 3, 5, 2, 4]


def test_longest_prefix_first_lets_the_cold_one_starve() -> None:
    queue = Queue("lpm")
    queue.add([*A, 0])
    queue.take()
    queue.add([*B, *B])
    for i in range(1, 100):
        queue.add([*A, i])
    assert queue.order()[-1] == 2


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
@pytest.mark.parametrize("seed", range(8))
def test_the_bound_holds_for_everybody_under_random_load(limit: int, seed: int) -> None:
    source = random.Random(f"{seed} {limit}")
    queue = Queue("program", max_overtakes=limit)
    passed: dict[int, int] = {}
    for _ in range(400):
        if len(queue.waiting) < 2 or source.random() < 0.45:
            ids = [source.randrange(3) for _ in range(source.randrange(1, 9))]
            wave = queue.arrivals // 3
            sequence = queue.add([*ids, 100 + queue.arrivals], source.randrange(5), wave=wave)
            passed[sequence.arrival] = 0
        else:
            before = {s.arrival: s.wave for s in queue.waiting}
            lane = queue.waiting.top()
            assert lane is not None
            taken = queue.policy.choose(lane, queue.cursor)
            cost = max(uncached_tokens(taken.node), 1)
            assert queue.take() is taken
            for arrival, wave in before.items():
                if wave < taken.wave:
                    passed[arrival] += cost
    assert max(passed.values()) <= limit


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="policy='best': must be one of dfs, fcfs, lpm"):
        make_policy("best", 1)
