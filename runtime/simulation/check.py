"""Checks of the simulator against the real engine: the same decisions, and about the same times.

The only part of the simulation that runs a model; torch comes with the engine it builds.
"""

from __future__ import annotations

import dataclasses
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
    predicted: float
    """Seconds in the model and around it."""
    measured: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to the measurement."""
        return self.predicted / self.measured - 1.0


def measure(engine: Engine, arrivals: Sequence[Arrival]) -> tuple[float, list[tuple[Work, float]]]:
    """Run programs on a real engine: their seconds in steps, and each step's work and seconds."""
    samples: list[tuple[Work, float]] = []

    def watch(_batch: Batch, work: Work, seconds: float) -> float:
        samples.append((work, seconds))
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
    return sum(seconds for _, seconds in samples), samples


def predict(
    engine: Engine, config: RuntimeConfig, cost: CostModel, arrivals: Sequence[Arrival]
) -> float:
    """What the simulator says of the seconds that programs spend in steps of that engine."""
    seconds = 0.0

    def watch(_batch: Batch, work: Work, _seconds: float) -> None:
        nonlocal seconds
        seconds += cost.seconds(work)

    simulation = Simulation(
        cost,
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
) -> tuple[FittedCost, list[Prediction]]:
    """Fit a cost model on the known workloads, and predict the asked ones."""
    set_wait_policy()
    config = RuntimeConfig(model=model, pool_tokens=32_768)
    engine = Engine.build(config)
    samples: list[tuple[Work, float]] = []
    measure(engine, next(iter(known.values()))[:2])  # compiles what is compiled when first used
    for arrivals in known.values():
        samples += measure(engine, arrivals)[1]
    cost = fit(str(engine.info["model"]), samples)
    found = [
        Prediction(name, predict(engine, config, cost, arrivals), measure(engine, arrivals)[0])
        for name, arrivals in asked.items()
    ]
    return cost, found
