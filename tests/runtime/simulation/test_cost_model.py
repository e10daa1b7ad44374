import random

import pytest

from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.schedule.batch import build_batch
from ramet.runtime.simulation.cost_model import PRESETS, TERMS, FittedCost, Work, fit


def random_work(rng: random.Random) -> Work:
    rows = rng.choice([1, 2, 5, 30, 200, 512])
    items = rng.randint(1, 2 * rows + 3)
    keys = rng.randint(rows, 40_000)
    return Work(rows, rng.randint(0, rows), items, keys, keys * rng.randint(1, 9))


def test_work_is_read_off_a_batch() -> None:
    tree = RadixTree(PagePool(64, 4))
    stem = tree.extend(tree.root(), [1, 2, 3])
    nodes = [tree.extend(tree.fork(stem), [7, 8]), tree.extend(tree.fork(stem), [9])]
    for node in (stem, *nodes):
        tree.hold(node)
        tree.reserve(node, len(node.tokens))
    batch = build_batch([(node, len(node.tokens)) for node in (stem, *nodes)], ())
    # The stem is seen by its own three rows and by three below it.
    assert Work.of(batch) == Work(rows=6, samples=0, items=3, keys=6, pairs=3 * 6 + 2 * 2 + 1)


def test_a_fit_finds_the_prices_of_a_linear_machine() -> None:
    rng = random.Random(1)
    truth = FittedCost("truth", (4e-3, 1e-3, 5e-5, 2e-5, 1e-6, 3e-8, 2e-9))
    samples = [(work, truth.seconds(work)) for work in (random_work(rng) for _ in range(400))]
    found = fit("found", samples)
    assert found.prices == pytest.approx(truth.prices, rel=1e-3)


def test_no_price_is_negative_and_noise_averages_out() -> None:
    rng = random.Random(2)
    truth = FittedCost("truth", (5e-3, 0.0, 1e-4, 0.0, 0.0, 1e-7, 0.0))
    samples = [
        (work, truth.seconds(work) * rng.uniform(0.8, 1.2))
        for work in (random_work(rng) for _ in range(600))
    ]
    found = fit("found", samples)
    assert min(found.prices) >= 0
    total = sum(seconds for _, seconds in samples)
    assert sum(found.seconds(work) for work, _ in samples) == pytest.approx(total, rel=0.1)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="2 samples"):
        fit("x", [(Work(1, 1, 1, 1, 1), 1.0)] * 2)
    assert len(TERMS) == len(Work(1, 1, 1, 1, 1).terms())


def test_a_gpu_is_bound_by_memory_at_few_rows_and_by_products_at_many() -> None:
    gpu = PRESETS["llama-8b-h100"]
    one, eight = (gpu.seconds(Work(rows, rows, 1, 100, 100)) for rows in (1, 8))
    assert eight == pytest.approx(one)
    many, twice = (gpu.seconds(Work(rows, 1, 1, rows, 1)) for rows in (4096, 8192))
    assert twice == pytest.approx(2 * many, rel=0.05)
    slower = PRESETS["llama-8b-a100"]
    assert slower.seconds(Work(1, 1, 1, 1, 1)) > one
