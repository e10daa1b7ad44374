import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ramet.runtime.cache.audit import audit_idle
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.engine import Engine
from ramet.runtime.schedule.policy import ProgramAware
from ramet.runtime.schedule.scheduler import Scheduler
from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.graph_writer import GraphWriter
from ramet.runtime.simulation.simulation import Simulation, simulate
from ramet.runtime.simulation.tokens import run
from ramet.runtime.simulation.walker import Arrival
from ramet.runtime.simulation.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[3]
COST = PRESETS["llama-8b-h100"]


def one_call(at: float, prompt: str, length: int) -> Arrival:
    g = GraphWriter("call")
    g.text(g.arg())
    g.gen(64)
    return Arrival(at, g.graph(), (prompt, length))


@pytest.mark.parametrize(
    ("name", "policy"),
    [*((name, "program") for name in WORKLOADS), *(("agents", p) for p in ("dfs", "lpm", "fcfs"))],
)
def test_everything_ends_and_nothing_is_left(name: str, policy: str) -> None:
    arrivals = list(WORKLOADS[name](1, 24))
    simulation = Simulation(COST, pool_tokens=12_288, policy=policy, max_running=16)
    for arrival in arrivals:
        simulation.add(arrival)
    outcome = simulation.finish()
    assert outcome.errors == 0
    assert len(outcome.programs) == len(arrivals)
    assert len(outcome.first_token) == outcome.stats["calls"]
    assert outcome.stats["contexts"] == simulation.load == simulation.expected == 0
    assert outcome.stats["hit_ratio"] <= 1.0
    audit_idle(simulation.engine.room.tree)


def test_it_is_deterministic() -> None:
    first, again = (
        simulate(WORKLOADS["mixed"](2, 16), COST, pool_tokens=16_384, max_running=16)
        for _ in range(2)
    )
    assert first.first_token == again.first_token
    assert first.gaps == again.gaps
    counts = ("computed_tokens", "recomputed_tokens", "retractions", "evicted_tokens", "steps")
    assert [first.stats[c] for c in counts] == [again.stats[c] for c in counts]


def test_times_are_those_of_the_steps() -> None:
    arrivals = [one_call(0.0, run(1, 8), 3), one_call(10.0, run(1, 8), 2)]
    outcome = simulate(arrivals, PRESETS["uniform"], pool_tokens=256)
    assert list(outcome.first_token) == [1.0, 1.0]
    assert list(outcome.gaps) == [1.0] * 5  # an end token follows each output
    assert outcome.makespan == 13.0
    assert list(outcome.programs) == [4.0, 3.0]
    assert outcome.stats["cached_tokens"] == 8


def test_queueing_counts_to_the_first_token() -> None:
    arrivals = [one_call(0.0, run(n, 4), 4) for n in range(2)]
    outcome = simulate(arrivals, PRESETS["uniform"], pool_tokens=256, max_running=1)
    assert sorted(outcome.first_token) == [1.0, 6.0]


def test_time_can_be_let_pass_bit_by_bit() -> None:
    arrivals = list(WORKLOADS["agents"](3, 30))
    whole = simulate(arrivals, COST, pool_tokens=32_768)
    simulation = Simulation(COST, pool_tokens=32_768)
    for arrival in arrivals:
        simulation.run(until=arrival.at)
        simulation.add(arrival)
    assert simulation.finish().gaps == whole.gaps


def test_memory_is_measured_when_asked_for() -> None:
    arrivals = list(WORKLOADS["summaries"](4, 4))
    used = simulate(arrivals, COST, pool_tokens=32_768, page_size=1, measure_memory=True)
    assert used.kv_utilisation == 1.0
    paged = simulate(arrivals, COST, pool_tokens=32_768, page_size=16, measure_memory=True)
    assert 0.96 <= paged.kv_utilisation < 1.0
    assert simulate(arrivals, COST, pool_tokens=32_768).kv_utilisation == 0.0


def test_it_is_the_engine_itself() -> None:
    simulation = Simulation(COST, pool_tokens=256)
    room = simulation.engine.room
    assert type(simulation.engine) is Engine
    assert type(room.scheduler) is Scheduler
    assert type(room.scheduler.policy) is ProgramAware
    assert (type(room.tree), type(room.tree.pool)) == (RadixTree, PagePool)


def names_in(path: Path) -> set[str]:
    """The classes and functions that a file defines for others."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, kinds) and not node.name.startswith("_")
    }


def test_there_is_no_second_implementation() -> None:
    engine = {
        name
        for room in ("schedule", "cache")
        for path in (ROOT / "runtime" / room).glob("*.py")
        if path.stem != "simulate"
        for name in names_in(path)
    }
    engine |= names_in(ROOT / "runtime" / "graph.py") | names_in(ROOT / "runtime" / "engine.py")
    assert {"Scheduler", "RadixTree", "PagePool", "Context", "Graph", "Engine"} <= engine
    for path in (ROOT / "runtime" / "simulation").glob("*.py"):
        again = names_in(path) & engine
        assert not again, f"{path.name} defines {again}"


def test_no_torch_is_loaded() -> None:
    code = (
        "import sys; from ramet.runtime.schedule.simulate import main; "
        "main(['--calls', '20', '--pool', '65536', '--policy', 'program']); "
        "print([m for m in ('torch', 'transformers', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_programs_whose_calls_are_refused_end_too() -> None:
    outcome = simulate(WORKLOADS["agents"](1, 60), PRESETS["uniform"], pool_tokens=512)
    assert outcome.errors > 0
    assert outcome.stats["contexts"] == 0
