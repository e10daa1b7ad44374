"""Checks of the simulator against the real engine: the same decisions, and about the same times.

The only part of the simulation that runs a model; torch comes with the engine it builds.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ramet.runtime.config import RuntimeConfig, set_wait_policy
from ramet.runtime.engine import Engine
from ramet.runtime.schedule.batch import Batch
from ramet.runtime.schedule.sequence import Generation
from ramet.runtime.simulation.cost_model import PRESETS, CostModel, FittedCost, Work, fit
from ramet.runtime.simulation.simulation import Simulation
from ramet.runtime.simulation.tokens import Tokens, run
from ramet.runtime.simulation.walker import Arrival, Manner

Decision = tuple[Any, ...]
"""Everything that a step was: rows, their places and segments, and who is ready."""


class RecordedTokens(Tokens):
    """Samples what a real model sampled."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.outputs: dict[int, list[int]] = {}
        """By key."""

    def sampled(self, key: int, index: int) -> int:
        """The recorded token."""
        return self.outputs[key][index]


def decisions(
    arrivals: Sequence[Arrival], cost: CostModel, **settings: Any
) -> tuple[list[Decision], list[Decision]]:
    """The steps of a real engine of the model `tiny`, and of a simulated one, on one timeline."""
    config = RuntimeConfig(model="tiny", dtype="float64", **settings)
    engine = Engine.build(config)
    tokens = RecordedTokens(engine.info["vocab_size"])
    real: list[Decision] = []
    simulated: list[Decision] = []

    def watch_real(batch: Batch, _work: Work, _seconds: float) -> None:
        real.append(_decision(batch))
        for sequence in batch.ready:
            if isinstance(sequence, Generation):
                tokens.outputs[sequence.key] = sequence.output_ids

    def watch_simulated(batch: Batch, _work: Work, _seconds: float) -> None:
        simulated.append(_decision(batch))

    manner = Manner(exact=True)
    settings["pool_tokens"] = engine.info["pool_tokens"]
    for simulation in (
        Simulation(cost, manner=manner, tokens=tokens, engine=engine, watch=watch_real),
        Simulation(cost, manner=manner, tokens=tokens, watch=watch_simulated, **settings),
    ):
        for arrival in arrivals:
            simulation.add(arrival)
        simulation.run()
    return real, simulated


def _decision(batch: Batch) -> Decision:
    items = batch.items
    segments = (items.slot_start, items.length, items.row_start, items.row_end, items.key_pos)
    return (
        tuple(batch.token_ids),
        tuple(batch.positions),
        tuple(batch.slots),
        tuple(map(tuple, segments)),
        tuple(sequence.arrival for sequence in batch.ready),
    )


def shrink(arrivals: Iterable[Arrival], factor: int) -> list[Arrival]:
    """The same programs with texts and outputs so many times shorter, for slow machines."""

    def shorter(value: Any) -> Any:
        if isinstance(value, str):
            seed, _, length = value.partition("*")
            return run(int(seed), max(int(length) // factor, 1))
        return max(value // factor, 1) if isinstance(value, int) else value

    return [dataclasses.replace(a, args=tuple(map(shorter, a.args))) for a in arrivals]


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """What the simulator said of a workload's time, and what it took."""

    workload: str
    clock: str
    """One of `CLOCKS`."""
    predicted: float
    """Seconds in the model and around it."""
    measured: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to the measurement."""
        return self.predicted / self.measured - 1.0


CLOCKS = ("wall", "processor")
"""What seconds are measured in: real ones, and those of all threads of the process, in which a
machine that does other things at the same time shows less."""


def measure(engine: Engine, arrivals: Sequence[Arrival]) -> list[tuple[Work, tuple[float, ...]]]:
    """Run programs on a real engine: each step's work, and its seconds by each of `CLOCKS`."""
    samples: list[tuple[Work, tuple[float, ...]]] = []
    last = time.process_time()

    def watch(_batch: Batch, work: Work, seconds: float) -> float:
        nonlocal last
        now = time.process_time()
        samples.append((work, (seconds, now - last)))
        last = now
        return seconds

    simulation = Simulation(
        PRESETS["uniform"],
        manner=Manner(exact=True),
        tokens=Tokens(engine.info["vocab_size"]),
        engine=engine,
        watch=watch,
    )
    for arrival in arrivals:
        simulation.add(arrival)
    simulation.run()
    engine.submit([{"op": "flush", "call": 0}])
    engine.take_events()
    return samples


def predict(
    engine: Engine, config: RuntimeConfig, costs: Sequence[CostModel], arrivals: Sequence[Arrival]
) -> list[float]:
    """What each cost model says of the seconds that programs spend in steps of that engine; time
    passes by the first one."""
    seconds = [0.0] * len(costs)

    def watch(_batch: Batch, work: Work, _seconds: float) -> None:
        for index, cost in enumerate(costs):
            seconds[index] += cost.seconds(work)

    simulation = Simulation(
        costs[0],
        manner=Manner(exact=True),
        tokens=Tokens(engine.info["vocab_size"]),
        watch=watch,
        pool_tokens=engine.info["pool_tokens"],
        page_size=config.page_size,
        chunk_tokens=config.chunk_tokens,
        max_running=config.max_running,
        policy=config.policy,
    )
    for arrival in arrivals:
        simulation.add(arrival)
    simulation.run()
    return seconds


def check_times(
    model: str | None, known: dict[str, list[Arrival]], asked: dict[str, list[Arrival]]
) -> tuple[list[FittedCost], list[Prediction]]:
    """Fit a cost model for each of `CLOCKS` on the known workloads, and predict the asked ones."""
    set_wait_policy()
    config = RuntimeConfig(model=model, pool_tokens=32_768)
    engine = Engine.build(config)
    samples: list[tuple[Work, tuple[float, ...]]] = []
    measure(engine, next(iter(known.values()))[:2])  # compiles what is compiled when first used
    for arrivals in known.values():
        samples += measure(engine, arrivals)
    costs = [
        fit(f"{engine.info['model']}, {clock}", [(work, times[i]) for work, times in samples])
        for i, clock in enumerate(CLOCKS)
    ]
    found = []
    for name, arrivals in asked.items():
        predicted = predict(engine, config, costs, arrivals)
        measured = map(sum, zip(*(times for _, times in measure(engine, arrivals)), strict=True))
        for clock, said, took in zip(CLOCKS, predicted, measured, strict=True):
            found.append(Prediction(name, clock, said, took))
    return costs, found
