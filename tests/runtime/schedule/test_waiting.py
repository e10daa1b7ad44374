from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.schedule.sequence import Sequence
from ramet.runtime.schedule.waiting import Lane, Waiting, uncached_tokens


def sequences(*arrivals: int, priority: int = 0) -> list[Sequence]:
    """Each in a wave of its own."""
    tree = RadixTree(PagePool(64, 4))
    made = []
    for arrival in arrivals:
        node = tree.extend(tree.root(), [1, 2, arrival])
        made.append(Sequence(node, 0, priority, arrival))
        made[-1].wave = arrival
    return made


def test_a_lane_knows_its_oldest_and_its_first():
    lane = Lane(0)
    one, two, three = sequences(1, 2, 3)
    for sequence, key in ((two, (5,)), (one, (9,)), (three, (7,))):
        lane.add(sequence, key)
    assert (lane.oldest(), lane.first()) == (one, two)
    lane.rekey(two, (8,))
    assert lane.first() is three
    lane.remove(one)
    lane.remove(three)
    assert (lane.oldest(), lane.first(), len(lane)) == (two, two, 1)


def test_what_has_passed_the_oldest_one_is_counted():
    lane = Lane(0)
    one, two, three, four = sequences(1, 2, 3, 4)
    for sequence in (one, two, three, four):
        lane.add(sequence, (sequence.arrival,))
    lane.remove(three, 30)
    assert lane.passed_tokens == 30
    lane.remove(two, 20)
    assert lane.passed_tokens == 50
    lane.remove(one, 10)  # The fourth one has been passed by nobody.
    assert lane.passed_tokens == 0
    lane.remove(four, 40)
    assert (len(lane), lane.passed_tokens) == (0, 0)


def test_nobody_has_passed_those_of_its_own_wave():
    lane = Lane(0)
    one, two, three, four = sequences(1, 2, 3, 4)
    two.wave, three.wave = 1, 3
    for sequence in (one, two, three, four):
        lane.add(sequence, (sequence.arrival,))
    lane.remove(two, 20)
    assert lane.passed_tokens == 0
    lane.remove(four, 40)
    assert lane.passed_tokens == 40
    lane.remove(one, 10)  # What is left is the third one, which the fourth one has passed.
    assert lane.passed_tokens == 40


def test_lanes_come_and_go_with_their_members():
    waiting = Waiting()
    assert waiting.top() is None
    (low,), (high,) = sequences(1), sequences(2, priority=4)
    for sequence in (low, high):
        waiting.lane_of(sequence).add(sequence, (0,))
    top = waiting.top()
    assert top is not None
    assert (top.priority, len(waiting), set(waiting)) == (4, 2, {low, high})
    waiting.remove(high)
    waiting.remove(low)
    assert (waiting.top(), len(waiting)) == (None, 0)


def test_uncached_tokens_are_those_of_the_whole_path():
    (one,) = sequences(1)
    assert uncached_tokens(one.node) == 3
