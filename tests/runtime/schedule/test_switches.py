import pytest

from ramet.runtime.schedule.switches import ALL_ON, Switches
from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.graph_writer import GraphWriter
from ramet.runtime.simulation.simulation import Outcome, Simulation
from ramet.runtime.simulation.tokens import run
from ramet.runtime.simulation.walker import Arrival, Manner


def simulation(lengths: list[int], prompt: int = 4, limit: int = 64, **settings) -> Simulation:
    """Calls that share nothing, on steps of one second each."""
    manner = settings.pop("manner", Manner())
    made = Simulation(
        PRESETS["uniform"], manner=manner, **{"pool_tokens": 1024, "policy": "fcfs", **settings}
    )
    for number, length in enumerate(lengths):
        g = GraphWriter("call")
        g.text(g.arg())
        g.gen(limit)
        made.add(Arrival(0.0, g.graph(), (run(number, prompt), length)))
    return made


def outcome(*args, **settings) -> Outcome:
    return simulation(*args, **settings).finish()


@pytest.mark.parametrize(("continuous", "steps"), [(False, 11), (True, 8)])
def test_orcas_textbook_case(continuous: bool, steps: int) -> None:
    """Four requests of 6, 4, 8 and 3 steps on three slots."""
    done = outcome(
        [6, 4, 8, 3],
        prompt=1,
        max_running=3,
        manner=Manner(exact=True),
        switches=Switches(continuous=continuous),
    )
    assert done.makespan == steps
    assert done.stats["steps"] == steps


def test_without_paging_each_reserves_its_longest_output() -> None:
    """Prompts of 4 and limits of 60: 64 slots each, and the pool has 128."""
    running = {}
    for paged in (False, True):
        done = outcome(
            [8] * 12, limit=60, pool_tokens=128, page_size=4, switches=Switches(paged=paged)
        )
        running[paged] = done.stats["peak_running"]
    assert running[False] == 2
    assert running[True] > 4  # once it has seen how long outputs turn out to be


def test_without_paging_nothing_is_ever_retracted() -> None:
    done = outcome([60] * 12, limit=60, pool_tokens=256, switches=Switches(paged=False))
    assert done.stats["retractions"] == 0
    assert done.stats["recomputed_tokens"] == 0


def test_prompts_first_stall_decodes_and_chunks_do_not() -> None:
    gaps = {}
    for stall_free in (False, True):
        made = simulation([40], chunk_tokens=32, switches=Switches(stall_free=stall_free))
        g = GraphWriter("long")
        g.text(g.arg())
        g.gen(8)
        made.add(Arrival(5.0, g.graph(), (run(99, 320), 2)))
        gaps[stall_free] = max(made.finish().gaps)
    assert gaps[True] == 1.0  # one step: no decode waits longer
    assert gaps[False] == 11.0  # the ten chunks of the prompt, and its own step


def test_all_are_on_in_earnest() -> None:
    assert Switches(True, True, True) == ALL_ON


@pytest.mark.parametrize("off", ["continuous", "paged", "stall_free"])
def test_no_switch_changes_a_token(off: str) -> None:
    lengths = [5, 9, 1, 12, 3, 3, 8]
    settings = {"pool_tokens": 128, "page_size": 4, "max_running": 3, "chunk_tokens": 8}
    done = outcome(lengths, prompt=20, limit=16, switches=Switches(**{off: False}), **settings)
    assert done.errors == 0
    assert done.stats["generated_tokens"] == sum(length + 1 for length in lengths)  # with the ends
