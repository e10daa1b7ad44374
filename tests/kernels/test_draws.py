"""Sampling: one battery over the reference and the kernels, then one against the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from draw_orders import BELOW_ONE, ask, words
from scipy import stats

from ramet.kernels import ops, reference
from ramet.kernels.cpu import fused
from ramet.kernels.draws import Draws

INF = math.inf


@pytest.fixture(params=["reference", "kernel"])
def place(request):
    if request.param == "reference":
        return reference
    if fused.why_not():
        pytest.skip("numba is not installed")
    return ops


def drawn(place, logits: torch.Tensor, asked: Sequence[float], size: int = 2000) -> set[int]:
    """What may come of row 0, by evenly spread uniforms and the two at the ends."""
    uniforms = [i / size for i in range(size)] + [BELOW_ONE]
    tokens, _ = place.draw(logits, ask([0], [uniforms], [asked]))
    return set(tokens[0].tolist())


@pytest.mark.parametrize("vocab", [1, 5, 64, 1023, 1024, 1025, 3000])
def test_greedy_is_the_first_of_the_largest(place, vocab):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randint(-4, 5, (40, vocab), generator=generator).float()
    logits[10:] = torch.randn(30, vocab, generator=generator)
    logits[20:] -= 100
    rows = [5, 39, 0, 5, *range(40)]
    tokens, best = place.greedy(logits, rows)
    assert best == logits[rows].amax(1).tolist()
    assert tokens == [int((logits[i] == logits[i].max()).nonzero()[0, 0]) for i in rows]


def test_greedy_takes_two_zeros_for_equal(place):
    logits = torch.full((2, 2100), -1.0)
    logits[0, 7], logits[0, 2050] = -0.0, 0.0
    logits[1, 3], logits[1, 9] = -0.0, 0.0
    assert place.greedy(logits, [0, 1])[0] == [7, 3]


@pytest.mark.parametrize("at", [0, 100, 1023, 1500, 2047, 2048, 2099])
@pytest.mark.parametrize("bad", [math.nan, -math.nan, INF])
def test_what_is_not_finite_is_the_largest(place, at, bad):
    logits = torch.randn(3, 2100, generator=torch.Generator().manual_seed(1))
    logits[1, at] = math.copysign(bad, bad)
    logits[2] = -INF
    best = torch.tensor(place.greedy(logits, [0, 1, 2])[1])
    assert best.isfinite().tolist() == [True, False, False]
    assert math.isnan(best[1]) == math.isnan(bad)
    assert best[2] == -INF
    tokens, largest = place.draw(logits, ask([0, 1, 2], [[0.5]] * 3))
    assert torch.equal(largest.isnan(), best.isnan())
    assert torch.equal(largest.nan_to_num(), best.nan_to_num())
    alone, _ = place.draw(logits[:1], ask([0], [[0.5]]))
    assert tokens[0] == alone[0]


def test_a_negative_nan_is_found(place):
    logits = torch.zeros(1, 1024)
    logits.view(torch.int32)[0, 5] = -(2**22)
    assert math.isnan(place.greedy(logits, [0])[1][0])


def test_nothing_and_views(place):
    logits = torch.randn(6, 80).T[:70]
    assert place.greedy(logits, []) == ([], [])
    tokens, best = place.greedy(logits, [69, 1])
    assert best == logits[[69, 1]].amax(1).tolist()
    assert tokens == logits[[69, 1]].argmax(1).tolist()


@pytest.mark.parametrize("vocab", [1, 31, 33, 1024, 1055, 2500])
def test_greedy_of_what_a_mask_leaves(place, vocab):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randint(-4, 5, (40, vocab), generator=generator).float()
    logits[20:] = torch.randn(20, vocab, generator=generator)
    share = torch.linspace(0.001, 1, 40)[:, None]
    allowed = torch.rand(40, vocab, generator=generator) < share
    allowed[:, vocab - 1] |= ~allowed.any(1)
    rows = [5, 39, 0, 5, *range(40)]
    masks = [row.numpy().tobytes() for row in words(allowed[rows])]
    tokens, best = place.greedy(logits, rows, masks)
    left = logits[rows].masked_fill(~allowed[rows], -INF)
    assert best == left.amax(1).tolist()
    assert tokens == left.argmax(1).tolist()
    again, _ = place.greedy(logits, rows)
    assert again == logits[rows].argmax(1).tolist()


def test_a_mask_hides_no_broken_logit_from_greedy(place):
    logits = torch.zeros(2, 70)
    logits[0, 67] = math.nan
    allowed = torch.ones(2, 70, dtype=torch.bool)
    allowed[0, 67] = allowed[1, 0] = False
    masks = [row.numpy().tobytes() for row in words(allowed)]
    tokens, best = place.greedy(logits, [0, 1], masks)
    assert math.isnan(best[0])
    assert (tokens[1], best[1]) == (1, 0.0)
    nothing = bytes(len(masks[0]))
    assert place.greedy(logits, [1], [nothing])[1] == [-INF]


def test_draws_invert_the_cumulative_weights(place):
    logits = torch.tensor([[0.0, 1, 0, 3, 0], [2, 0, 0, 0, 2]]).log()
    uniforms = [[0.0, 0.2499, 0.2501, BELOW_ONE], [0.0, 0.4999, 0.5001, BELOW_ONE]]
    tokens, best = place.draw(logits, ask([0, 1], uniforms))
    assert tokens.tolist() == [[1, 1, 3, 3], [0, 0, 4, 4]]
    assert torch.equal(best, logits.amax(1))


@pytest.mark.parametrize("vocab", [33, 1024, 2500])
@pytest.mark.parametrize("asked", [(0.7, 0, 1.0, 0.0), (1.0, 9, 0.9, 0.01), (0.0, 0, 1.0, 0.0)])
def test_what_is_masked_or_banned_is_never_drawn(place, vocab, asked):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(20, vocab, generator=generator) * 3
    allowed = torch.rand(20, vocab, generator=generator) < torch.linspace(0.01, 0.9, 20)[:, None]
    allowed[:, 4] = allowed[:, 1] = True
    logits[::2, 9] = -INF
    uniforms = [[0.0, 0.3, BELOW_ONE]] * 20
    bans = [(n, token) for n in range(0, 20, 3) for token in (1, int(logits[n].argmax()))]
    draws = ask(range(20), uniforms, [asked] * 20, bans, words(allowed))
    tokens, best = place.draw(logits, draws)
    left = logits.masked_fill(~allowed, -INF)
    for n, token in bans:
        left[n, token] = -INF
    assert torch.equal(best, left.amax(1))
    assert left.gather(1, tokens).isfinite().all()
    ids = torch.arange(vocab)
    if asked[0] and not asked[1]:
        for row, some in zip(left, tokens, strict=True):
            assert some[0] == ids[row.isfinite()][0]  # at 0 the first that there is
            assert some[2] == ids[row.isfinite()][-1] or row[some[2]] > row.max() - 30
    # A row is not changed by what was done to a copy of it, nor are the neighbours.
    free, _ = place.draw(logits, ask(range(20), uniforms, [asked] * 20, bans[:2]))
    plain, _ = place.draw(logits, ask(range(20), uniforms, [asked] * 20))
    assert torch.equal(free[1:], plain[1:])


def test_a_mask_or_a_ban_hides_no_broken_logit(place):
    logits = torch.zeros(3, 70)
    logits[0, 9] = logits[1, 67] = logits[2, 9] = math.nan
    allowed = torch.ones(3, 70, dtype=torch.bool)
    allowed[0, 9] = allowed[1, 67] = False
    draws = ask([0, 1, 2], [[0.5]] * 3, bans=[(2, 9)], masks=words(allowed))
    assert place.draw(logits, draws)[1].isnan().all()


def test_everything_banned(place):
    logits = torch.zeros(2, 40)
    bans = [(0, token) for token in range(40)]
    tokens, best = place.draw(logits, ask([0, 1], [[0.99], [0.99]], bans=bans))
    assert best.tolist() == [-INF, 0.0]
    assert tokens[1] == 39


def test_a_rank_goes_to_the_lowest_of_equals(place):
    logits = torch.tensor([[1.0, 2, 2, 2, 0] + [-3.0] * 1100])
    for top_k, wanted in ((1, {1}), (2, {1, 2}), (3, {1, 2, 3}), (4, {0, 1, 2, 3})):
        assert drawn(place, logits, (1.0, top_k, 1.0, 0.0)) == wanted
    equal = torch.zeros(1, 1500)
    assert drawn(place, equal, (1.0, 7, 1.0, 0.0)) == set(range(7))
    assert drawn(place, equal, (1.0, 0, 99.5 / 1500, 0.0)) == set(range(100))
    assert drawn(place, equal, (1.0, 100, 0.495, 0.0)) == set(range(50))


def test_the_filters_in_their_order(place):
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).log()
    for top_p, wanted in ((0.39, {1}), (0.41, {1, 2}), (0.71, {1, 2, 3}), (1e-9, {1})):
        assert drawn(place, logits, (1.0, 0, top_p, 0.0)) == wanted
    assert drawn(place, logits, (1.0, 0, BELOW_ONE, 0.0)) == {0, 1, 2, 3}
    assert drawn(place, logits, (1.0, 2, 0.56, 0.0)) == {1}  # 0.4 / 0.7 = 0.571
    assert drawn(place, logits, (1.0, 2, 0.58, 0.0)) == {1, 2}
    assert drawn(place, logits, (1.0, 0, 1.0, 0.6)) == {1, 2}
    assert drawn(place, logits, (1.0, 3, 0.95, 0.6)) == {1, 2}
    assert drawn(place, logits, (1.0, 0, 1.0, 1.0)) == {1}
    assert drawn(place, logits, (1.0, 400, 1.0, 0.0)) == {0, 1, 2, 3}
    assert drawn(place, logits, (1.0, -1, 1.0, 0.0)) == {0, 1, 2, 3}


@pytest.mark.parametrize("more", [(0, 1.0, 0.0), (3, 1.0, 0.0), (0, 0.9, 0.0), (2, 0.9, 0.5)])
def test_extreme_temperatures(place, more):
    logits = torch.tensor([[1.0, 3, -INF, 3, -2]])
    for temperature in (5e-324, 1e-300, 1e-6):
        assert drawn(place, logits, (temperature, *more)) == {1, 3}
    kept = {0: {0, 1, 3, 4}, 3: {0, 1, 3}, 2: {1, 3}}[more[0]]
    for temperature in (1e9, 1e300):
        assert drawn(place, logits, (temperature, *more)) == kept


def test_draws_follow_the_distribution(place):
    generator = torch.Generator().manual_seed(8)
    logits = torch.randn(3, 1200, generator=generator) * 0.3
    logits[:, ::90] += 4
    uniforms = torch.rand(3, 20000, generator=generator, dtype=torch.float64)
    for asked in ((0.9, 0, 1.0, 0.0), (1.3, 50, 0.9, 0.0)):
        tokens, _ = place.draw(logits, ask(range(3), uniforms.tolist(), [asked] * 3))
        for row, some in zip(logits.double(), tokens, strict=True):
            probabilities = (row / asked[0]).softmax(0)
            if asked[1]:
                ranked = probabilities.sort(descending=True)
                mass = ranked.values[:50].cumsum(0) / ranked.values[:50].sum()
                size = int((mass < 0.9).sum()) + 1
                probabilities[ranked.indices[size:]] = 0
                probabilities /= probabilities.sum()
            observed = torch.bincount(some, minlength=1200)
            assert observed[probabilities == 0].sum() == 0
            many = probabilities > 5 / 20000
            rest = [float(x[~many].sum()) for x in (observed, probabilities)]
            counts = [*observed[many].tolist(), rest[0]]
            wanted = [20000 * p for p in (*probabilities[many].tolist(), rest[1])]
            if rest[1] < 1e-9:
                counts, wanted = counts[:-1], wanted[:-1]
            assert stats.chisquare(counts, wanted).pvalue > 1e-3


def random_draws(seed: int, n: int, vocab: int) -> tuple[torch.Tensor, Draws]:
    """Rows of all shapes, some with ties, masks and bans, under all filters."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*size: int) -> torch.Tensor:
        return torch.rand(*size, generator=generator, dtype=torch.float64)

    logits = torch.randn(n, vocab, generator=generator)
    logits *= 10 ** (3 * rand(n, 1).float() - 2)
    logits[: n // 3] = (logits[: n // 3] * 4).round() / 4
    logits += 20 * torch.randn(n, 1, generator=generator)
    asked = torch.stack([10 ** (2 * rand(n) - 1), *torch.zeros(3, n, dtype=torch.float64)], 1)
    asked[:, 1] = torch.where(rand(n) < 0.4, (rand(n) ** 4 * vocab).round(), 0.0)
    asked[:, 2] = torch.where(rand(n) < 0.5, 1 - rand(n) ** 3, 1.0)
    asked[:, 3] = torch.where(rand(n) < 0.3, rand(n) ** 3, 0.0)
    allowed = rand(n, vocab) < rand(n, 1) ** 2 + 2 / vocab
    allowed[rand(n) < 0.5] = True
    allowed[:, 0] = True
    bans = (rand(n, vocab) < 1 / vocab).nonzero()
    bans = bans[bans[:, 1] > 0]
    masks = words(allowed) if seed % 2 else None
    return logits, Draws(torch.arange(n), asked, rand(n, 3), bans, masks)


@pytest.mark.parametrize(("seed", "vocab"), [(0, 40), (1, 40), (2, 1500), (3, 1500), (4, 6000)])
def test_the_kernels_draw_what_the_reference_draws(seed, vocab):
    if fused.why_not():
        pytest.skip("numba is not installed")
    logits, draws = random_draws(seed, 800, vocab)
    tokens, best = ops.draw(logits, draws)
    wanted, largest = reference.draw(logits, draws)
    assert torch.equal(best, largest)
    assert torch.equal(tokens, wanted)


def test_a_draw_does_not_depend_on_its_neighbours(place):
    logits, draws = random_draws(5, 60, 2100)
    tokens, _ = place.draw(logits, draws)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    places = order.argsort()
    bans = torch.stack([places[draws.bans[:, 0]], draws.bans[:, 1]], 1)
    assert draws.masks is not None
    moved = Draws(
        order,
        draws.asked[order],
        draws.uniforms[order][:, [2, 0]],
        bans[bans[:, 0].argsort(stable=True)],
        draws.masks[order],
    )
    assert torch.equal(place.draw(logits, moved)[0], tokens[order][:, [2, 0]])
    for n in range(0, 60, 7):
        bans = draws.bans[draws.bans[:, 0] == n].clone()
        bans[:, 0] = 0
        one = Draws(
            torch.zeros(1, dtype=torch.long),
            draws.asked[n : n + 1],
            draws.uniforms[n : n + 1],
            bans,
            draws.masks[n : n + 1],
        )
        assert torch.equal(place.draw(logits[n : n + 1], one)[0][0], tokens[n])


def test_other_types_and_a_missing_package_fall_back(monkeypatch):
    assert not ops.draws_fast(torch.zeros(1, 4, dtype=torch.float64))
    assert not ops.draws_fast(torch.zeros(1, 4, device="meta"))
    logits = torch.randn(2, 50).bfloat16()
    draws = ask([0, 1], [[0.2], [0.7]])
    for got, wanted in zip(ops.draw(logits, draws), reference.draw(logits, draws), strict=True):
        assert torch.equal(got, wanted)
    monkeypatch.setattr(fused, "why_not", lambda: "not now")
    assert not ops.draws_fast(torch.zeros(1, 4))
    assert ops.greedy(torch.tensor([[1.0, 2.0]]), [0])[0] == [1]


def test_masks_of_another_size_are_refused(place):
    masks = torch.zeros(1, 1, dtype=torch.int32)
    with pytest.raises(ValueError, match="mask"):
        place.draw(torch.zeros(1, 40), ask([0], [[0.1]], masks=masks))
