import pytest

from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.replicas import (
    BLOCK_TOKENS,
    ROUTERS,
    HashRouter,
    PrefixRouter,
    simulate_replicas,
)
from ramet.runtime.simulation.report import hit_rate
from ramet.runtime.simulation.simulation import simulate
from ramet.runtime.simulation.workloads import WORKLOADS

A, B = [1] * 3 * BLOCK_TOKENS, [2] * 3 * BLOCK_TOKENS


@pytest.mark.parametrize("router", ["consistent_hash", "longest_prefix"])
def test_equal_beginnings_stay_together_until_there_are_too_many(router: str) -> None:
    made = ROUTERS[router](4)
    loads = [4, 4, 4, 4]
    home = made.route(A, loads)
    assert made.route([*A, 7], loads) == home
    loads[home] = 40
    assert made.route(A, loads) != home


def test_the_longer_match_wins_and_of_none_the_idlest() -> None:
    router = PrefixRouter(3)
    assert router.route(A, [5, 4, 5]) == 1
    assert router.route([*A[:BLOCK_TOKENS], *B], [5, 5, 5]) == 1
    assert router.route(B, [4, 5, 5]) == 0
    assert router.route([9], [5, 5, 4]) == 2


def test_it_forgets_the_oldest() -> None:
    router = PrefixRouter(2, max_blocks=8)
    for seed in range(40):
        router.route([seed] * 3 * BLOCK_TOKENS, [1, 1])
    assert all(len(seen) <= 8 for seen in router._seen)


def test_few_move_when_a_replica_comes() -> None:
    before, after = HashRouter(4), HashRouter(5)
    prompts = [[seed] * BLOCK_TOKENS for seed in range(400)]
    moved = sum(before.route(p, [1] * 4) != after.route(p, [1] * 5) for p in prompts)
    assert moved < 400 * 0.35


def test_a_router_that_knows_prefixes_hits_more() -> None:
    arrivals = list(WORKLOADS["agents"](1, 90))
    cost = PRESETS["llama-8b-h100"]
    found = {
        router: simulate_replicas(arrivals, cost, 3, router, pool_tokens=32_768, page_size=64)
        for router in ROUTERS
    }
    for outcome in found.values():
        assert len(outcome.programs) == len(arrivals)
        assert outcome.stats["calls"] == len(outcome.first_token)
    for router in ("consistent_hash", "longest_prefix"):
        assert hit_rate(found[router].stats) > hit_rate(found["round_robin"].stats)
    one = simulate(arrivals, cost, pool_tokens=131_072, page_size=64)
    best = found["longest_prefix"].stats["optimum_hit_rate"]
    assert best == pytest.approx(one.stats["optimum_hit_rate"], abs=1e-3)
