from ramet.runtime.cache.node import Node
from ramet.runtime.cache.origin import Origin
from ramet.runtime.errors import Cancelled
from ramet.runtime.schedule.context import Context, ForkGroup, Place, Program

ROOT = Node(None, [], 0, False)
PROGRAM = Program(7, 0, 0, None, True, "demo")


def family(n: int) -> tuple[Context, list[Context]]:
    parent = Context(1, PROGRAM, "", ROOT)
    group = ForkGroup(parent, list(range(2, 2 + n)))
    children = [
        Context(number, PROGRAM, str(index), group=group, index=index)
        for index, number in enumerate(group.children)
    ]
    for child in children:
        child.report()
    return parent, children


def test_a_branch_knows_its_parent_and_its_siblings():
    parent, children = family(3)
    assert (parent.parent, parent.group) == (None, None)
    parent.report()
    for index, child in enumerate(children):
        assert child.parent is parent
        assert child.group is children[0].group
        assert (child.index, child.group.size) == (index, 3)
        assert child.group.children[child.index] == child.id


def test_a_group_counts_its_branches_that_have_something_to_do():
    _, (first, second) = family(2)
    group = first.group
    assert group is not None
    assert group.unfinished == 2, "their fork is still to run"
    first.node = second.node = ROOT
    first.push({"op": "generate"})
    for child in (first, second, first):
        child.report()
    assert group.unfinished == 1
    first.pop()
    first.report()
    assert group.unfinished == 0
    second.push({"op": "append"})
    second.report()
    assert group.unfinished == 1
    second.leave()
    assert (group.unfinished, second.group) == (0, None)
    second.report()
    assert group.unfinished == 0


def test_a_failed_branch_is_ready_to_hear_of_it():
    _, (child,) = family(1)
    assert not child.ready
    child.failed = Cancelled("no")
    assert child.ready


def test_a_place_knows_what_is_still_to_come():
    parent, _ = family(1)
    origin = Origin("a.py:1", "demo", 7, "")
    place = Place(parent, origin)
    labelled = Place(parent, origin, depth=4, labelled=2)
    assert (place.remaining, labelled.remaining) == (0, 2)
    for op in ("append", "generate", "score", "generate"):
        parent.push({"op": op})
    assert (place.remaining, labelled.remaining) == (3, 3)
    for _ in range(3):
        parent.pop()
    assert (place.remaining, labelled.remaining) == (1, 2)
    assert place.group is None
