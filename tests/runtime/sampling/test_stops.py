from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.sampling.stops import StopSet

TEXTS = st.text(alphabet="abé", max_size=12)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=5)


def states(stops: StopSet, data: bytes) -> list[int]:
    result = [0]
    for byte in data:
        result.append(stops.advance(result[-1], byte))
    return result


@given(TEXTS, STOPS)
def test_found_is_the_longest_stop_that_ends_here(text: str, stops: list[str]) -> None:
    data = text.encode()
    automaton = StopSet(stops)
    for end, state in enumerate(states(automaton, data)):
        ending = [s for s in stops if data[:end].endswith(s.encode())]
        longest = max(ending, key=lambda s: len(s.encode()), default=None)
        assert automaton.found(state) == longest


@given(TEXTS, STOPS)
def test_held_is_the_longest_proper_prefix_at_the_end(text: str, stops: list[str]) -> None:
    data = text.encode()
    automaton = StopSet(stops)
    prefixes = {s.encode()[:n] for s in stops for n in range(len(s.encode()))}
    for end, state in enumerate(states(automaton, data)):
        held = max((len(p) for p in prefixes if data[:end].endswith(p)), default=0)
        assert automaton.held(state) == held


def test_truth_is_having_a_stop() -> None:
    assert not StopSet(())
    assert not StopSet([""])
    assert StopSet(["a"])


def test_an_empty_stop_never_matches() -> None:
    automaton = StopSet(["", "END"])
    assert [automaton.found(s) for s in states(automaton, b"xEND")] == [None] * 4 + ["END"]
