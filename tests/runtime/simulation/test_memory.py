from ramet.runtime.schedule.switches import Switches
from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.memory import EVERY, MemoryMeter
from ramet.runtime.simulation.simulation import Simulation, simulate
from ramet.runtime.simulation.workloads import WORKLOADS


def test_nothing_reserved_is_nothing_used() -> None:
    meter = MemoryMeter(Simulation(PRESETS["uniform"], pool_tokens=64).engine.room.scheduler)
    for _ in range(EVERY):
        meter.sample()
    assert meter.utilisation == 0.0


def test_what_is_reserved_for_the_worst_case_counts() -> None:
    used = [
        simulate(
            WORKLOADS["summaries"](1, 3),
            PRESETS["uniform"],
            pool_tokens=32_768,
            measure_memory=True,
            switches=Switches(paged=paged),
        ).kv_utilisation
        for paged in (False, True)
    ]
    assert used[0] < 0.9 < 0.96 <= used[1]
