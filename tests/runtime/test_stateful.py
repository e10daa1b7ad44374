"""Random operations on tree, ledger and scheduler, through the engine, against a naive model that
recomputes everything: the same tokens, and the books add up after each step."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from engine_machine import EngineMachine
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

OFTEN = ("done", "generate", "score", "fork", "close", "abort waiting", "evict", "retract", "flush")
RARE = (
    *("abort queued", "abort prefilling", "abort decoding", "abort retracted", "abort program"),
    *("broken step", "pool_exhausted"),
    *("Cancelled", "BackendError", "PoolTooSmall", "ContextOverflow"),
)
"""What must happen, so that the test isn't vacuous: in any run, and in a long one."""


@pytest.mark.parametrize(
    ("examples", "operations", "often"),
    [
        # Only shrinking what fails takes minutes.
        pytest.param(30, 2_000, OFTEN, marks=pytest.mark.timeout(900), id="short"),
        pytest.param(
            1_250,
            100_000,
            OFTEN + RARE,
            marks=[pytest.mark.full, pytest.mark.timeout(3600)],
            id="whole",
        ),
    ],
)
@pytest.mark.parametrize("flying", [False, True], ids=["", "flying"])
def test_random_operations(
    examples: int, operations: int, often: tuple[str, ...], flying: bool
) -> None:
    tally: Counter[str] = Counter()
    for hostile in (False, True):
        run_state_machine_as_test(
            functools.partial(EngineMachine, hostile, flying, tally),
            settings=settings(
                max_examples=examples,
                stateful_step_count=50,
                phases=[Phase.generate, Phase.shrink],
                report_multiple_bugs=False,
            ),
        )
    assert tally["operation"] >= operations, tally
    assert bool(tally["ahead"]) == flying
    assert {kind: tally[kind] for kind in often if tally[kind] < operations // 2000} == {}, tally
