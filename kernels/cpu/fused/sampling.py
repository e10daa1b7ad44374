"""Sampling of float32 logits on the caller's thread: the likeliest token, draws, filters by rank.

A row is a few passes over numbers that stay in a core's cache. Draws as `reference.draw` says, but
for rounding: in another order of adding, a cumulative sum differs by some 1e-13 of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ramet.kernels.cpu.fused.exponential import exponential
from ramet.kernels.cpu.fused.jit import inlined, jit
from ramet.kernels.cpu.fused.scan import BLOCK, gather, likeliest, likeliest_of, mask
from ramet.kernels.draws import Draws

_BINS = 1024
"""Candidates are put into so many, by their distance from the likeliest token."""
_NEAR = 2.0
"""Candidates are first sought among weights above exp(-2); then exp(-3), and so on."""
_FAR = 40.0
_LOWEST = -3.4028234663852886e38
"""Of float32; below is only minus infinity."""


@inlined
def _candidates(x, best, heat, weights, most, goal, found):
    """Write the likeliest tokens to `found`, at least `most` or as many as have the mass `goal`, or
    all that can be drawn: (their number, the distance from `best` of those in the last bin)."""
    nats = _NEAR
    while True:
        size = gather(x, np.float32(max(best - nats / heat, _LOWEST)), found)
        mass = 0.0
        for i in range(size):
            mass += weights[found[i]]
        if size >= most or mass >= goal:
            return size, nats / heat
        if nats > _FAR:
            return gather(x, np.float32(_LOWEST), found), nats / heat
        nats *= 1.5


@inlined
def _before(x, a, b):
    """Whether token `a` is likelier than `b`, or its equal with a lower id."""
    return x[a] > x[b] or (x[a] == x[b] and a < b)


@inlined
def _sift(x, heap, size, at):
    """Let the token at `at` sink to its place in a heap of tokens, the likeliest on top."""
    token = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(x, heap[child + 1], heap[child]):
            child += 1
        if not _before(x, heap[child], token):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = token


@inlined
def _bin(x, best, scale):
    """The bin of a logit: never a later one than that of a smaller logit."""
    away = (best - np.float64(x)) * scale
    return np.int64(away) if away < _BINS - 1 else np.int64(_BINS - 1)


@inlined
def _least_kept(x, best, scale, weights, found, size, heap, bins, most, goal):
    """Keep the likeliest of the tokens `found` until there are `most` or their mass is `goal`: (the
    smallest logit kept, the mass kept). Its equals that aren't kept lose their weight."""
    for at in range(_BINS):
        bins[at, 0] = bins[at, 1] = 0.0
    for i in range(size):
        at = _bin(x[found[i]], best, scale)
        bins[at, 0] += weights[found[i]]
        bins[at, 1] += 1.0
    mass, kept = 0.0, 0.0
    border = 0
    while border < _BINS and kept + bins[border, 1] < most and mass + bins[border, 0] < goal:
        mass += bins[border, 0]
        kept += bins[border, 1]
        border += 1
    left = top = np.int64(0)  # Numba would compile `_sift` again for a literal.
    for i in range(size):
        if _bin(x[found[i]], best, scale) == border:
            heap[left] = found[i]
            left += 1
    for i in range(left // 2 - 1, -1, -1):
        _sift(x, heap, left, i)
    least = np.float32(_LOWEST)
    while left and (x[heap[0]] == least or (kept < most and mass < goal)):
        token = heap[0]
        if kept < most and mass < goal:
            least = x[token]
            mass += weights[token]
            kept += 1.0
        else:
            weights[token] = 0.0
        left -= 1
        heap[0] = heap[left]
        _sift(x, heap, left, top)
    return least, mass


@inlined
def _weigh(x, best, heat, fraction, weights, sums):
    """`exp((x - best) * heat)`, or 0 below `fraction`, and the sums of the blocks."""
    for block in range(len(sums)):
        # Views: LLVM makes no good vectors of indices that start somewhere.
        some = x[block * BLOCK : (block + 1) * BLOCK]
        mine = weights[block * BLOCK : (block + 1) * BLOCK]
        total = 0.0
        for i in range(len(some)):
            weight = exponential((np.float64(some[i]) - best) * heat)
            weight = weight if weight >= fraction else 0.0
            mine[i] = weight
            total += weight
        sums[block] = total


@inlined
def _drop(x, least, fraction, weights, sums):
    """Take their weight from logits below `least` and from weights below `fraction`."""
    for block in range(len(sums)):
        some = x[block * BLOCK : (block + 1) * BLOCK]
        mine = weights[block * BLOCK : (block + 1) * BLOCK]
        total = 0.0
        for i in range(len(some)):
            weight = mine[i]
            weight = weight if some[i] >= least and weight >= fraction else 0.0
            mine[i] = weight
            total += weight
        sums[block] = total


@inlined
def _find(weights, sums, uniform):
    """The first token whose cumulative weight exceeds `uniform` times the sum."""
    total = 0.0
    last = 0
    for block in range(len(sums)):
        total += sums[block]
        if sums[block] > 0.0:
            last = block
    goal = uniform * total
    before = 0.0
    at = 0
    while at < last and before + sums[at] <= goal:
        before += sums[at]
        at += 1
    # Rounding may leave the goal beyond the block's end; then it is its last token.
    token = -1
    for i in range(at * BLOCK, len(weights)):
        if weights[i] > 0.0:
            if token >= 0 and i >= (at + 1) * BLOCK:
                break
            token = i
            before += weights[i]
            if before > goal:
                break
    return token


@inlined
def _rank(x, best, heat, asked, weights, sums, found, heap, bins):
    """Take their weight from the tokens that top-k, top-p and min-p leave out."""
    most, goal, mass = float(len(x)), np.inf, 0.0
    for block in range(len(sums)):
        mass += sums[block]
    by_mass = asked[2] < 1.0
    if 0.0 < asked[1] < most:
        most = asked[1]
    else:
        goal = asked[2] * mass
        by_mass = False
    size, reach = _candidates(x, best, heat, weights, most, goal, found)
    scale = (_BINS - 1) / reach
    least = np.float32(_LOWEST)
    while True:
        least, mass = _least_kept(x, best, scale, weights, found, size, heap, bins, most, goal)
        if not by_mass:
            break
        by_mass, goal = False, asked[2] * mass
    _drop(x, least, asked[3], weights, sums)


@jit
def _greedy(logits, indices, masks, some, tokens, maxima):
    """Writes int64 `tokens` and float32 `maxima`, `[m]`, for int64 `indices`; without masks,
    `masks` has no rows."""
    for i in range(len(indices)):
        if len(masks):
            tokens[i], maxima[i] = likeliest_of(logits[indices[i]], masks[i], some)
        else:
            tokens[i], maxima[i] = likeliest(logits[indices[i]])


@jit
def _draw(logits, rows, asked, uniforms, bans, masks, scratch, tokens, maxima):
    """Writes int64 `tokens` `[n, m]` and float32 `maxima` `[n]` for the fields of `Draws`; without
    masks, `masks` has no rows."""
    edited, weights, sums, found, heap, bins = scratch
    vocab = logits.shape[1]
    banned = 0
    for n in range(len(rows)):
        x = logits[rows[n]]
        is_banned = banned < len(bans) and bans[banned, 0] == n
        if len(masks):
            mask(x, masks[n], edited)
        elif is_banned:
            for i in range(vocab):
                edited[i] = x[i]
        if len(masks) or is_banned:
            x = edited
        while banned < len(bans) and bans[banned, 0] == n:
            edited[bans[banned, 1]] += np.float32(-np.inf)
            banned += 1
        token, maximum = likeliest(x)
        maxima[n] = maximum
        temperature = asked[n, 0]
        if not (temperature > 0.0 and -np.inf < maximum < np.inf):
            for m in range(uniforms.shape[1]):
                tokens[n, m] = token
            continue
        best, heat = np.float64(maximum), 1.0 / max(temperature, 2.2250738585072014e-308)
        ranked = 0.0 < asked[n, 1] < vocab or asked[n, 2] < 1.0
        _weigh(x, best, heat, 0.0 if ranked else asked[n, 3], weights, sums)
        if ranked:
            _rank(x, best, heat, asked[n], weights, sums, found, heap, bins)
        for m in range(uniforms.shape[1]):
            tokens[n, m] = _find(weights, sums, uniforms[n, m])


def greedy(
    logits: torch.Tensor, rows: Sequence[int], masks: Sequence[bytes] = ()
) -> tuple[list[int], list[float]]:
    """As the reference, for float32 logits."""
    tokens, maxima = np.empty(len(rows), np.int64), np.empty(len(rows), np.float32)
    lines = np.ascontiguousarray(logits.numpy())
    shape = len(rows) if masks else 0, (logits.shape[1] + 31) // 32
    words = np.frombuffer(bytearray().join(masks), np.int32).reshape(shape)
    some = np.empty(BLOCK, np.float32)
    _greedy(lines, np.array(rows, dtype=np.int64), words, some, tokens, maxima)
    return tokens.tolist(), maxima.tolist()


def draw(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference, for float32 logits."""
    vocab, words = logits.shape[1], (logits.shape[1] + 31) // 32
    masks = np.empty((0, words), np.int32) if draws.masks is None else draws.masks.numpy()
    if draws.masks is not None and masks.shape != (len(draws.rows), words):
        raise ValueError(
            f"masks: {list(masks.shape)} for {len(draws.rows)} draws of a vocabulary of {vocab}"
        )
    tokens = np.empty(draws.uniforms.shape, np.int64)
    maxima = np.empty(len(draws.rows), np.float32)
    # Made here: to make them itself, the kernel would take Numba two seconds more to compile.
    scratch = (
        np.empty(vocab, np.float32),
        np.empty(vocab),
        np.empty((vocab + BLOCK - 1) // BLOCK),
        np.empty(vocab, np.int32),
        np.empty(vocab, np.int32),
        np.empty((_BINS, 2)),
    )
    _draw(
        logits.contiguous().numpy(), draws.rows.numpy(), draws.asked.numpy(),
        draws.uniforms.numpy(), draws.bans.numpy(), masks, scratch, tokens, maxima,
    )  # fmt: skip
    return torch.from_numpy(tokens), torch.from_numpy(maxima)
