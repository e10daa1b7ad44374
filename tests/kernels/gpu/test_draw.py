"""Draws against the reference.

Sums in another order differ by some 1e-13 of the whole, so that a uniform near the border of two
tokens may fall to either: a token is right if the reference draws no later one for a uniform 1e-12
larger, and no earlier one for one as much smaller. For nearly all uniforms that is one token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from draw_orders import BELOW_ONE, PLAIN, ask, words
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import reference
from ramet.kernels.draws import Draws

INF = math.inf


def draw(logits, draws):
    from ramet.kernels.gpu.draw import draw

    return draw(logits, draws)


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks of few tokens: the interpreter takes as long for a small one."""
    from ramet.kernels.gpu import draw

    monkeypatch.setattr(draw, "BLOCK", 128)
    monkeypatch.setattr(draw, "BLOCKS", 32)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether they are equal, NaN for NaN."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def check(logits: torch.Tensor, draws: Draws) -> torch.Tensor:
    """The tokens, which are right, as are the largest logits."""
    tokens, best = draw(logits, draws)
    around = torch.stack([draws.uniforms - 1e-12, draws.uniforms, draws.uniforms + 1e-12])
    around = around.clamp(0, BELOW_ONE).permute(1, 0, 2).flatten(1)
    wide = Draws(draws.rows, draws.asked, around, draws.bans, draws.masks)
    wanted, largest = reference.draw(logits, wide)
    lowest, middle, highest = wanted.view(len(tokens), 3, -1).unbind(1)
    assert best.dtype == logits.dtype
    assert same(best, largest)
    assert tokens.dtype == torch.int64
    assert bool(((lowest <= tokens) & (tokens <= highest)).all())
    # Where that leaves a choice, at the ends of long tails, most are the reference's nevertheless.
    assert float((tokens == middle).double().mean()) >= 0.99
    return tokens


def mixed(seed: int, n: int, vocab: int, dtype: torch.dtype, device: torch.device):
    """Logits with ties and holes, and distributions over them of all combinations of filters, with
    masks and bans of some; the last quarter names rows a second time."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*size: int) -> torch.Tensor:
        return torch.rand(*size, generator=generator, dtype=torch.float64)

    logits = torch.randn(n, vocab, generator=generator) * 10 ** (3 * rand(n, 1).float() - 2)
    logits[::3] = (logits[::3] * 4).round() / 4
    logits += 5 * torch.randn(n, 1, generator=generator)
    logits[rand(n, vocab) < 0.02] = -INF
    logits[:, 0] = 0
    number = torch.arange(n)
    heats = torch.tensor([0.7, 1.0, 0.0, 3.0, 1e-310, 0.2, 1e30], dtype=torch.float64)
    some_k = (rand(n) ** 4 * vocab * 1.1).ceil()
    some_p = torch.where(rand(n) < 0.1, 1e-9, 1 - rand(n) ** 3)
    some_min = torch.where(rand(n) < 0.1, 1.0, rand(n) ** 3)
    asked = torch.stack(
        [
            heats[number % 7],
            torch.where(number & 1 == 1, some_k, 0.0),
            torch.where(number & 2 == 2, some_p, 1.0),
            torch.where(number & 4 == 4, some_min, 0.0),
        ],
        1,
    )
    uniforms = rand(n, 3)
    uniforms[::4, 1] = 0
    uniforms[::4, 2] = BELOW_ONE
    allowed = rand(n, vocab) < rand(n, 1) ** 2 + 2 / vocab
    allowed[rand(n) < 0.5] = True
    allowed[:, 0] = True
    bans = (rand(n, vocab) < 2 / vocab).nonzero()
    bans = bans[bans[:, 1] > 0]
    rows = torch.where(number < n - n // 4, number, number // 3)
    draws = Draws(
        rows.to(device),
        asked.to(device),
        uniforms.to(device),
        bans.to(device),
        words(allowed).to(device) if seed % 2 else None,
    )
    return logits.to(device, dtype), draws


@pytest.mark.parametrize(
    ("seed", "vocab", "dtype"),
    [
        (0, 600, torch.float32),
        (1, 600, torch.float32),
        (2, 257, torch.bfloat16),
        (3, 257, torch.float16),
        (5, 33, torch.float32),
        (6, 1, torch.float32),
    ],
)
def test_mixed_batches_equal_the_reference(seed, vocab, dtype, device, small_blocks):
    logits, draws = mixed(seed, 48 if vocab == 600 else 24, vocab, dtype, device)
    kept = logits.clone(), *(x.clone() for x in (draws.bans, draws.uniforms, draws.asked))
    masks = None if draws.masks is None else draws.masks.clone()
    check(logits, draws)
    for tensor, copy in zip((logits, draws.bans, draws.uniforms, draws.asked), kept, strict=True):
        assert torch.equal(tensor, copy)
    assert masks is None or torch.equal(masks, draws.masks)


def test_blocks_as_they_are(device):
    from ramet.kernels.gpu.draw import BLOCK

    assert BLOCK < 9001
    logits, draws = mixed(7, 16, 9001, torch.float32, device)
    check(logits, draws)
    # The largest on both sides of a block's end, and at the end of the row.
    for at in ([4095, 4096], [0, 9000], [8191, 8999]):
        logits.fill_(-INF)
        logits[:2, at] = 50
        uniforms = [[0.0, 0.4999, 0.5001, BELOW_ONE]] * 2
        tokens = check(logits, ask([0, 1], uniforms, [PLAIN, (1.0, 2, 0.9, 0.0)], device=device))
        assert tokens.tolist() == [[at[0], at[0], at[1], at[1]]] * 2


def test_draws_invert_the_cumulative_weights(device, small_blocks):
    logits = torch.tensor([[0.0, 1, 0, 3, 0], [2, 0, 0, 0, 2]], device=device).log()
    uniforms = [[0.0, 0.2499, 0.2501, BELOW_ONE], [0.0, 0.4999, 0.5001, BELOW_ONE]]
    tokens, best = draw(logits, ask([0, 1], uniforms, device=device))
    assert tokens.tolist() == [[1, 1, 3, 3], [0, 0, 4, 4]]
    assert torch.equal(best, logits.amax(1))


def test_a_weight_at_the_goal_is_not_above_it(device, small_blocks):
    # Equal weights: every sum is exact, and a token's begins where the last one's ends.
    logits = torch.zeros(1, 512, device=device)
    places = [0, 1, 127, 128, 129, 255, 256, 384, 511]
    uniforms = [[place / 512 for place in places]]
    assert draw(logits, ask([0], uniforms, device=device))[0].tolist() == [places]


def sets(logits: torch.Tensor, cases: Sequence[tuple[Sequence[float], set[int]]]) -> None:
    """Row 0 under each case's temperature and filters gives just its tokens."""
    uniforms = [*(i / 12 for i in range(12)), BELOW_ONE]
    number, asked = len(cases), [asked for asked, _ in cases]
    draws = ask([0] * number, [uniforms] * number, asked, device=logits.device)
    for some, (case, wanted) in zip(draw(logits, draws)[0].tolist(), cases, strict=True):
        assert set(some) == wanted, case


def test_a_rank_goes_to_the_lowest_of_equals(device, small_blocks):
    logits = torch.tensor([[1.0, 2, 2, 2, 0] + [-3.0] * 300], device=device)
    cases = ((1, {1}), (2, {1, 2}), (3, {1, 2, 3}), (4, {0, 1, 2, 3}))
    sets(logits, [((1.0, top_k, 1.0, 0.0), wanted) for top_k, wanted in cases])
    # Equals in three blocks, zeros of both signs among them.
    equal = torch.zeros(1, 300, device=device)
    equal[0, ::2] = -0.0
    asked = [(1.0, 7, 1, 0), (1.0, 200, 1, 0), (1.0, 0, 199.5 / 300, 0), (1.0, 100, 0.495, 0)]
    tokens, _ = draw(equal, ask([0] * 4, [[0.0, 0.5, BELOW_ONE]] * 4, asked, device=device))
    assert tokens.tolist() == [[0, 3, 6], [0, 100, 199], [0, 100, 199], [0, 25, 49]]
    # Top-p ends among the equals at top-k's border, of which only the first two were left.
    steps = torch.tensor([[0.0, 2, 0, 0, 0]], device=device)
    mass = math.exp(2) + 2
    sets(
        steps,
        [
            ((1.0, 3, (mass - 1.01) / mass, 0.0), {0, 1}),
            ((1.0, 3, (mass - 0.99) / mass, 0.0), {0, 1, 2}),
            ((1.0, 3, BELOW_ONE, 0.0), {0, 1, 2}),
            ((1.0, 3, 0.5, 0.0), {1}),
        ],
    )


def test_the_filters_in_their_order(device, small_blocks):
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]], device=device).log()
    cases = [((1.0, 0, top_p, 0.0), {1}) for top_p in (-1.0, 0.0, 1e-300, 1e-9, 0.39)]
    sets(
        logits,
        [
            *cases,
            ((1.0, 0, 0.41, 0.0), {1, 2}),
            ((1.0, 0, 0.71, 0.0), {1, 2, 3}),
            ((1.0, 0, BELOW_ONE, 0.0), {0, 1, 2, 3}),
            ((1.0, 2, 0.56, 0.0), {1}),  # 0.4 / 0.7 = 0.571
            ((1.0, 2, 0.58, 0.0), {1, 2}),
            ((1.0, 0, 0.85, 0.6), {1, 2}),  # Top-p's goal is of what min-p would cut, too.
            ((1.0, 0, 1.0, 0.6), {1, 2}),
            ((1.0, 3, 0.95, 0.6), {1, 2}),
            ((1.0, 0, 1.0, 1.0), {1}),
            ((1.0, 0, 1.0, 7.0), {1}),  # Nothing is left: the likeliest.
            ((1.0, 400, 1.0, 0.0), {0, 1, 2, 3}),
            ((1.0, 1e300, 1.0, 0.0), {0, 1, 2, 3}),
            ((1.0, -1, 1.0, 0.0), {0, 1, 2, 3}),
            ((0.0, 3, 0.5, 0.0), {1}),
        ],
    )


def test_extreme_temperatures(device, small_blocks):
    logits = torch.tensor([[1.0, 3, -INF, 3, -2]], device=device)
    cases = []
    for more, kept in (
        ((0, 1.0, 0.0), {0, 1, 3, 4}),
        ((3, 1.0, 0.0), {0, 1, 3}),
        ((0, 0.99, 0.0), {0, 1, 3, 4}),
        ((2, 0.9, 0.5), {1, 3}),
    ):
        cases += [((heat, *more), {1, 3}) for heat in (5e-324, 1e-310, 1e-300, 1e-6)]
        cases += [((heat, *more), kept) for heat in (1e9, 1e300, 1.7e308)]
    sets(logits, cases)


def test_more_are_asked_for_than_can_be_drawn(device, small_blocks):
    logits = torch.full((2, 300), -INF, device=device)
    logits[0, [3, 140, 290]] = torch.tensor([0.0, 1.0, -900.0], device=device)
    logits[1, [3, 140, 290]] = torch.tensor([0.0, 1.0, -3.4e38], device=device)
    for row in (0, 1):
        cases = [(1.0, top_k, top_p, 0.0) for top_k in (0, 2, 3, 9) for top_p in (1.0, 0.999)]
        sets(logits[row : row + 1], [(case, {3, 140}) for case in cases])


def test_what_is_not_finite(device, small_blocks):
    logits = torch.randn(8, 300, generator=torch.Generator().manual_seed(1)).to(device)
    logits[1, 200] = logits[1, 250] = math.nan
    logits[2] = -INF
    logits[3, 9] = INF
    logits[4, 130] = -math.nan
    logits[4, 5] = INF
    logits[5] = math.nan
    logits[6, 299] = INF
    logits[7, 299] = logits[7, 40] = INF
    allowed = torch.ones(12, 300, dtype=torch.bool, device=device)
    allowed[1] = allowed[8] = False  # A NaN is no less one, and what is hidden is minus infinity.
    rows = [*range(8), 0, 0, 3, 7]
    bans = [(6, 299), (7, 299), *((9, token) for token in range(300)), (10, 9), (11, 299), (11, 40)]
    filters = ((0.8, 0, 1.0, 0.0), (0.8, 5, 0.9, 0.1), (0.0, 0, 1.0, 0.0))
    for asked in filters:
        for some, masks in ((bans, words(allowed)), (bans, None), ([], words(allowed)), ([], None)):
            draws = ask(rows, [[0.3]] * 12, [asked] * 12, some, masks, device=device)
            tokens, best = draw(logits, draws)
            wanted, largest = reference.draw(logits, draws)
            assert same(best, largest)
            assert torch.equal(tokens, wanted)


def test_a_draw_does_not_depend_on_its_neighbours(device, small_blocks):
    logits, draws = mixed(9, 24, 300, torch.float32, device)
    assert draws.masks is not None
    tokens, best = draw(logits, draws)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0)).to(device)
    bans = torch.stack([order.argsort()[draws.bans[:, 0]], draws.bans[:, 1]], 1)
    moved = Draws(
        draws.rows[order],
        draws.asked[order],
        draws.uniforms[order][:, [2, 0]],
        bans[bans[:, 0].argsort(stable=True)],
        draws.masks[order],
    )
    again, largest = draw(logits, moved)
    assert torch.equal(again, tokens[order][:, [2, 0]])
    assert torch.equal(largest, best[order])
    for n in range(0, 24, 5):
        bans = draws.bans[draws.bans[:, 0] == n].clone()
        bans[:, 0] = 0
        row, zero = draws.rows[n : n + 1], draws.rows[:1] * 0
        some = slice(n, n + 1)
        one = Draws(zero, draws.asked[some], draws.uniforms[some], bans, draws.masks[some])
        alone, largest = draw(logits[row].clone(), one)
        assert torch.equal(alone, tokens[some])
        assert torch.equal(largest, best[some])


def test_bans_and_masks_of_others_change_no_bit(device, small_blocks):
    logits, draws = mixed(10, 8, 300, torch.float32, device)
    fields = draws.rows, draws.asked, draws.uniforms
    tokens, _ = draw(logits, Draws(*fields, draws.bans[:0]))
    masks = torch.full((8, 10), -1, dtype=torch.int32, device=device)
    masks[0, 3:] = 0
    for bans in (draws.bans[:0], torch.tensor([[0, 7], [0, 120], [0, 7]], device=device)):
        for some in (masks, None):
            other, _ = draw(logits, Draws(*fields, bans, some))
            assert torch.equal(other[1:], tokens[1:])


def test_draws_follow_the_distribution(device, monkeypatch, small_blocks):
    from ramet.kernels.gpu import draw as file

    stats = pytest.importorskip("scipy.stats")
    monkeypatch.setattr(file, "BLOCK", 8)
    generator = torch.Generator().manual_seed(8)
    logits = torch.randn(1, 20, generator=generator)
    uniforms = torch.rand(1, 600, generator=generator, dtype=torch.float64)
    asked = (1.3, 12, 0.9, 0.0)
    tokens = draw(logits.to(device), ask([0], uniforms.tolist(), [asked], device=device))[0][
        0
    ].cpu()
    probabilities = (logits[0].double() / asked[0]).softmax(0)
    ranked = probabilities.sort(descending=True)
    mass = ranked.values[:12].cumsum(0) / ranked.values[:12].sum()
    probabilities[ranked.indices[int((mass < 0.9).sum()) + 1 :]] = 0
    probabilities /= probabilities.sum()
    observed = torch.bincount(tokens, minlength=20)
    some = probabilities > 0
    assert int(observed[~some].sum()) == 0
    wanted = 600 * probabilities[some]
    assert float(wanted.min()) > 5
    assert stats.chisquare(observed[some].tolist(), wanted.tolist()).pvalue > 1e-3


class NoLook(TorchDispatchMode):
    """Refuses what would wait for a device to tell its host a number."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "equal", "is_nonzero"), name
        return func(*args, **(kwargs or {}))


def test_the_host_looks_at_nothing(device, small_blocks):
    logits, draws = mixed(11, 3, 40, torch.float32, device)
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoLook():
        logits.amax().item()
    with NoLook():
        draw(logits, draws)


def test_views_and_nothing(device, small_blocks):
    wide = torch.randn(6, 80, generator=torch.Generator().manual_seed(3)).to(device)
    rows, uniforms = torch.arange(12, device=device)[::2] % 3, torch.rand(5, 6).double().T
    asked = torch.tensor([[0.9, 5, 0.9, 0.0]], dtype=torch.float64, device=device).expand(6, 4)
    masks = torch.randint(-(2**31), 2**31 - 1, (12, 8), dtype=torch.int32).to(device)
    bans = torch.tensor([[0, 9, 1], [2, 9, 1], [2, 9, 69]], device=device)[:, ::2]
    for mask in (masks[::2, :3], masks[:6, ::3], masks[:1].expand(6, 8)):
        check(wide[::2, 3:73], Draws(rows, asked, uniforms.to(device), bans, mask[:, :3]))
        check(wide[::2, 3:73], Draws(rows, asked, uniforms.to(device), bans[:0], mask[:, :3]))
    tokens, best = draw(wide, Draws(rows[:0], asked[:0], uniforms[:0].to(device), bans[:0]))
    assert (tokens.shape, best.shape) == ((0, 5), (0,))
    tokens, best = draw(wide, Draws(rows, asked, uniforms[:, :0].to(device), bans))
    assert tokens.shape == (6, 0)
    assert torch.equal(best, reference.draw(wide, Draws(rows, asked, uniforms, bans))[1])


def test_refusals_name_what_was_given(device):
    logits, uniforms = torch.zeros(2, 40, device=device), [[0.1], [0.2]]
    good = ask([0, 1], uniforms, device=device)

    def refused(wanted: str, logits: torch.Tensor = logits, **fields: torch.Tensor) -> None:
        names = ("rows", "asked", "uniforms", "bans", "masks")
        some = {name: fields.get(name, getattr(good, name)) for name in names}
        with pytest.raises(ValueError, match=wanted):
            draw(logits, Draws(**some))

    refused(r"logits torch.float64 \[2, 40\].* not float32, bfloat16 or float16", logits.double())
    refused(r"logits torch.float32 \[40\]", logits[0])
    refused(r"logits .*strides \(1, 2\), not .*strides \(any, 1\)", logits.T.contiguous().T)
    refused(r"logits .*\[2, 0\].* not .*\[rows, 1 to 524288\]", logits[:, :0])
    refused(r"logits .*\[1, 524289\]", torch.zeros(1, 1, device=device).expand(1, 524289))
    refused(r"rows torch.int32 \[2\] on .*, not torch.int64 \[2\]", rows=good.rows.int())
    refused(r"rows torch.int64 \[1, 2\]", rows=good.rows[None])
    refused(r"asked torch.float32 \[2, 4\]", asked=good.asked.float())
    refused(r"asked torch.float64 \[1, 4\] .*, not torch.float64 \[2, 4\]", asked=good.asked[:1])
    refused(r"uniforms torch.float64 \[2\] .*\[2, 1\]", uniforms=good.uniforms[:, 0])
    refused(r"uniforms torch.float64 \[3, 1\]", uniforms=good.uniforms[[0, 1, 1]])
    refused(r"bans torch.int64 \[0\] .* \[0, 2\]", bans=good.bans.view(-1))
    masks = torch.zeros(2, 1, dtype=torch.int32, device=device)
    refused(r"masks torch.int32 \[2, 1\] .*, not torch.int32 \[2, 2\].* \[2, 40\]", masks=masks)
    refused("asked .* on meta, not", asked=good.asked.to("meta"))
