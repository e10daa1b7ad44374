import random
from collections.abc import Callable

import pytest

from ramet.runtime.schedule.step_budget import FLOOR_ROWS, GROWTH, WINDOW, StepBudget
from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.report import quantile
from ramet.runtime.simulation.simulation import simulate
from ramet.runtime.simulation.workloads import summaries

Cost = Callable[[int, int], float]


def linear(step: float = 0.02, decode: float = 0.002, row: float = 0.0004) -> Cost:
    return lambda decodes, rows: step + decode * decodes + row * rows


def drive(budget: StepBudget, cost: Cost, decodes: int, steps: int) -> list[int]:
    """Mixed steps as large as may be; the rows of prompts of each."""
    found = []
    for _ in range(steps):
        rows = budget.prefill_rows(decodes)
        found.append(rows)
        budget.note(decodes, rows, cost(decodes, rows))
    return found


def test_steps_take_the_target_once_the_cost_is_known():
    cost = linear()
    for known in ([], [4], [1, 4]):  # how many decodes steps without prompts have been seen with
        budget = StepBudget(0.1, 2048)
        budget.note(0, 512, cost(0, 512))
        for decodes in known:
            budget.note(decodes, 0, cost(decodes, 0))
        rows = drive(budget, cost, 4, 30)[-1]
        assert cost(4, rows) == pytest.approx(0.1, rel=0.03)


def test_a_cost_that_isnt_linear_is_followed_too():
    def cost(decodes: int, rows: int) -> float:
        return 0.02 + 0.01 * decodes + 0.001 * rows**0.8

    budget = StepBudget(0.15, 4096)
    budget.note(0, 512, cost(0, 512))
    budget.note(2, 0, cost(2, 0))
    rows = drive(budget, cost, 2, 40)[-1]
    assert cost(2, rows) == pytest.approx(0.15, rel=0.03)


def test_the_number_of_decodes_may_grow_while_prompts_come():
    cost = linear()
    budget = StepBudget(0.2, 2048)
    budget.note(1, 0, cost(1, 0))
    drive(budget, cost, 1, 10)
    for decodes in range(2, 65):
        drive(budget, cost, decodes, 2)
    rows = drive(budget, cost, 64, 10)[-1]
    assert cost(64, rows) == pytest.approx(0.2, rel=0.03)


@pytest.mark.parametrize("slow", [1, 2])
def test_slow_steps_now_and_then_are_passed_over(slow: int):
    cost = linear()
    budget = StepBudget(0.1, 2048)
    budget.note(4, 0, cost(4, 0))
    settled = drive(budget, cost, 4, 30)[-1]
    for _ in range(slow):
        budget.note(4, settled, 5.0)
        assert budget.prefill_rows(4) == pytest.approx(settled, rel=0.03)
    for _ in range(slow):
        budget.note(4, 0, 5.0)  # one without prompts
    assert drive(budget, cost, 4, WINDOW)[-1] == pytest.approx(settled, rel=0.03)


def test_first_steps_that_compile_something_are_forgotten():
    cost = linear()
    budget = StepBudget(0.1, 512)
    budget.note(0, 512, 30.0)
    budget.note(1, 0, 3.0)
    rows = drive(budget, cost, 1, 6 * WINDOW)
    assert rows[0] == FLOOR_ROWS
    assert cost(1, rows[-1]) == pytest.approx(0.1, rel=0.03)


def test_a_machine_that_becomes_slower_and_faster_is_followed():
    budget = StepBudget(0.1, 2048)
    for factor in (1.0, 2.0, 0.5, 3.0):
        cost = linear(0.02 * factor, 0.001 * factor, 0.0004 * factor)
        rows = drive(budget, cost, 4, 8 * WINDOW)[-1]
        assert cost(4, rows) == pytest.approx(0.1, rel=0.03)


def test_a_target_that_no_size_keeps_leaves_the_floor():
    cost = linear()
    budget = StepBudget(0.01, 2048)
    budget.note(0, 2048, cost(0, 2048))
    budget.note(4, 0, cost(4, 0))
    assert drive(budget, cost, 4, 20)[-1] == FLOOR_ROWS


def test_no_more_than_a_chunk_however_much_time_there_is():
    cost = linear()
    budget = StepBudget(1000.0, 256)
    budget.note(0, 256, cost(0, 256))
    assert budget.prefill_rows(6) == 250
    assert drive(budget, cost, 6, 20) == [250] * 20
    assert budget.prefill_rows(256) == 0


def test_a_chunk_below_the_floor_is_the_floor():
    budget = StepBudget(1e-9, 8)
    budget.note(0, 8, 1.0)
    budget.note(1, 0, 1.0)
    assert budget.prefill_rows(1) == 7
    assert budget.prefill_rows(0) == 8


def test_nothing_known_is_the_floor_and_grows_from_there():
    cost = linear()
    budget = StepBudget(0.1, 2048)
    rows = drive(budget, cost, 4, 20)
    assert rows[0] == FLOOR_ROWS
    assert all(later <= GROWTH * max(rows[:i]) for i, later in enumerate(rows) if i)
    assert cost(4, rows[-1]) == pytest.approx(0.1, rel=0.03)


def test_small_pieces_and_steps_without_time_say_nothing():
    budget = StepBudget(0.1, 2048)
    budget.note(1, 0, 0.01)
    budget.note(1, 100, 0.02)
    before = budget.prefill_rows(1)
    budget.note(1, 1, 0.09)
    budget.note(1, 100, 0.0)
    assert budget.prefill_rows(1) == before


@pytest.mark.parametrize("seed", range(20))
def test_whatever_steps_take_the_bounds_hold(seed: int):
    rng = random.Random(seed)
    chunk = rng.choice([5, 16, 100, 512])
    budget = StepBudget(rng.choice([0.001, 0.1, 10.0]), chunk)
    for _ in range(300):
        decodes = rng.randrange(chunk + 1)
        rows = budget.prefill_rows(decodes)
        assert min(FLOOR_ROWS, chunk - decodes) <= rows <= chunk - decodes
        budget.note(decodes, rng.choice([0, rows]), rng.choice([0.0, rng.expovariate(10.0), 1e9]))


@pytest.mark.parametrize("seed", range(5))
def test_noise_leaves_the_median_step_near_the_target(seed: int):
    rng = random.Random(seed)
    cost = linear()
    budget = StepBudget(0.1, 2048)
    taken = []
    for step in range(400):
        rows = budget.prefill_rows(8) if step % 4 else 0
        slow = 10.0 if rng.random() < 0.05 else rng.uniform(0.8, 1.25)
        budget.note(8, rows, cost(8, rows) * slow)
        if rows and step > 20:
            taken.append(cost(8, rows))
    taken.sort()
    assert taken[len(taken) // 2] == pytest.approx(0.1, rel=0.15)
    assert taken[-len(taken) // 20] < 0.2


def test_tokens_come_at_the_target_in_the_simulator():
    def gaps(target_step_ms: float | None) -> list[float]:
        settings = {"pool_tokens": 200_000, "chunk_tokens": 8192, "max_running": 128}
        outcome = simulate(
            summaries(5, 60),
            PRESETS["llama-8b-h100"],
            target_step_ms=target_step_ms,
            **settings,
        )
        return list(outcome.gaps)

    assert quantile(gaps(None), 0.99) > 0.04
    assert quantile(gaps(20), 0.99) == pytest.approx(0.02, rel=0.05)
