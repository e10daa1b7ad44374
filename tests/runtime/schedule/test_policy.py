import pytest

from ramet.runtime.cache.node import Node
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.schedule.policy import make_policy
from ramet.runtime.schedule.sequence import Sequence


def sequence(program: int, arrival: int, priority: int = 0) -> Sequence:
    return Sequence(Node(None, [], 0, False), program, priority, arrival)


def order(policy: str, sequences: list[Sequence]) -> list[int]:
    return [s.arrival for s in sorted(sequences, key=make_policy(policy))]


def test_fcfs_goes_by_arrival_within_a_priority():
    assert order("fcfs", [sequence(1, 3), sequence(2, 1), sequence(3, 2, priority=1)]) == [2, 1, 3]


def test_program_lets_older_programs_go_on_first():
    assert order("program", [sequence(1, 9), sequence(2, 1), sequence(1, 4)]) == [4, 9, 1]


def test_other_policies_are_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"lpm.*fcfs, program"):
        make_policy("lpm")
