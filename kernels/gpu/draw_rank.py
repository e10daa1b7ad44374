"""What top-k and top-p leave of a distribution, and the parts that `draw`'s kernels share.

Nothing is sorted. A border is bisected: each pass counts and weighs the logits of one interval, and
the interval shrinks to logits that it has, so that the last one left is the border, after 5 to 25
passes as a rule. Passes leave out blocks whose largest logit is too small. One program does it all,
so a few ranked rows leave most of a large device idle. Of equals at a border, it counts how many
are kept, the lowest ids first.
"""

from __future__ import annotations

import triton
import triton.language as tl

VARY = ("mask_stride", "words", "masked", "each")
"""Arguments that differ between batches; nothing may be compiled by their values."""


@triton.jit
def values(x, bits, masked, vocab, block, BLOCK: tl.constexpr):
    """Tokens of a block of the row at `x`, and their logits: minus infinity where the mask at
    `bits` hides them, if there is one."""
    token = block * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab
    value = tl.load(x + token, mask=inside, other=float("-inf")).to(tl.float32)
    word = tl.load(bits + token // 32, mask=inside & (masked != 0), other=-1)
    hidden = (((word >> (token % 32)) & 1) == 0) & (value == value)
    return token, tl.where(hidden, float("-inf"), value)


@triton.jit
def largest_of(value, token, END: tl.constexpr):
    """The largest of float32 values and its token, the first of equals; or a NaN, the first."""
    broken = tl.min(tl.where(value != value, token, END), axis=0)
    sane = tl.where(value != value, float("-inf"), value)
    largest = tl.max(sane, axis=0)
    first = tl.min(tl.where(sane == largest, token, END), axis=0)
    is_broken = broken < END
    return tl.where(is_broken, float("nan"), largest), tl.where(is_broken, broken, first)


@triton.jit
def likeliest(best, tokens, blocks, BLOCKS: tl.constexpr):
    """The same of a row, from its blocks'."""
    at = tl.arange(0, BLOCKS)
    value = tl.load(best + at, mask=at < blocks, other=float("-inf"))
    largest, block = largest_of(value, at, BLOCKS)
    return largest, tl.load(tokens + block)


@triton.jit
def is_drawn(asked, largest):
    """Whether a row isn't just its likeliest token."""
    return (tl.load(asked) > 0) & (tl.abs(largest) < float("inf"))


@triton.jit
def weights(value, largest, asked):
    """`exp((value - largest) / temperature)` in float64; below the smallest normal number,
    temperatures are all alike."""
    heat = 1.0 / tl.maximum(tl.load(asked), 2.2250738585072014e-308)
    return tl.exp((value.to(tl.float64) - largest.to(tl.float64)) * heat)


@triton.jit
def _between(x, bits, masked, vocab, best, blocks, asked, largest, low, middle, high, by_mass,
             BLOCK: tl.constexpr):  # fmt: skip
    """Of the logits from `middle` to `high`: their number, their weight if `by_mass`, the smallest;
    and the largest of those from `low` to below `middle`, or minus infinity."""
    count = tl.full([], 0, tl.int32)
    mass = tl.full([], 0, tl.float64)
    smallest = tl.full([], float("inf"), tl.float32)
    below = tl.full([], float("-inf"), tl.float32)
    for block in range(blocks):
        if tl.load(best + block) >= low:
            value = values(x, bits, masked, vocab, block, BLOCK)[1]
            taken = (value >= middle) & (value <= high)
            size = tl.sum(taken.to(tl.int32), axis=0)
            count += size
            smallest = tl.minimum(smallest, tl.min(tl.where(taken, value, float("inf")), axis=0))
            left = (value >= low) & (value < middle)
            below = tl.maximum(below, tl.max(tl.where(left, value, float("-inf")), axis=0))
            # Of a block that has none of the interval, no weight is worked out.
            if by_mass & (size > 0):
                mass += tl.sum(tl.where(taken, weights(value, largest, asked), 0.0), axis=0)
    return count, mass, smallest, below


@triton.jit
def _border(x, bits, masked, vocab, best, blocks, asked, largest, low, most, goal, by_mass,
            BLOCK: tl.constexpr):  # fmt: skip
    """The largest logit, of those from `low`, that has with all above it the number `most` or the
    mass `goal`, else `low`; and the number and mass above it.

    What is above `high` has too little; each pass takes from the interval at least one logit.
    """
    high = largest
    above = tl.full([], 0, tl.int32)
    over = tl.full([], 0, tl.float64)
    reach = 4 * tl.load(asked)
    while low < high:
        middle = ((low.to(tl.float64) + high.to(tl.float64)) / 2).to(tl.float32)
        # First near the likeliest, in strides that double: what is asked for is seldom far away.
        near = tl.minimum((largest.to(tl.float64) - reach).to(tl.float32), high)
        middle = tl.maximum(middle, near)
        middle = tl.where(middle > low, middle, high)
        count, mass, smallest, below = _between(
            x, bits, masked, vocab, best, blocks, asked, largest, low, middle, high, by_mass, BLOCK
        )
        if (above + count >= most) | (over + mass >= goal):
            low = smallest
        else:
            above += count
            over += mass
            high = tl.maximum(below, low)
        reach *= 2
    return low, above, over


@triton.jit
def _keep(x, bits, masked, vocab, best, blocks, asked, largest, least, equals, cut, sums,
          BLOCK: tl.constexpr):  # fmt: skip
    """Write the blocks' weights, of logits above `least` and of the first `equals` that equal it:
    (their sum, the last token of these equals). Weights below `cut` are none."""
    seen = tl.full([], 0, tl.int32)
    last = tl.full([], -1, tl.int32)
    total = tl.full([], 0, tl.float64)
    for block in range(blocks):
        part = tl.full([], 0, tl.float64)
        if tl.load(best + block) >= least:
            token, value = values(x, bits, masked, vocab, block, BLOCK)
            equal = (value == least).to(tl.int32)
            first = (equal == 1) & (seen + tl.cumsum(equal, axis=0) <= equals)
            weight = weights(value, largest, asked)
            weight = tl.where((value > least) | first, weight, 0.0)
            part = tl.sum(tl.where(weight < cut, 0.0, weight), axis=0)
            last = tl.maximum(last, tl.max(tl.where(first, token, -1), axis=0))
            seen += tl.sum(equal, axis=0)
        tl.store(sums + block, part)
        total += part
    return total, last


@triton.jit(do_not_specialize=VARY, do_not_specialize_on_alignment=("masks",))
def rank_kernel(logits, rows, masks, asked, best, tokens, sums, maxima, leasts, lasts, stride,
                mask_stride, vocab, blocks, masked,
                BLOCK: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    """One program: a distribution's largest logit, and what top-k and top-p leave of it, which is
    what is above `leasts`, and its equals up to the token `lasts`."""
    line = tl.program_id(0).to(tl.int64)
    asked += line * 4
    best += line * blocks
    sums += line * blocks
    largest = likeliest(best, tokens + line * blocks, blocks, BLOCKS)[0]
    tl.store(maxima + line, largest.to(maxima.dtype.element_ty))
    top_k, top_p = tl.load(asked + 1), tl.load(asked + 2)
    by_count, by_mass = (top_k > 0) & (top_k < vocab), top_p < 1
    last = tl.full([], -1, tl.int32)
    least = tl.full([], float("-inf"), tl.float32)
    if is_drawn(asked, largest) & (by_count | by_mass):
        x = logits + tl.load(rows + line) * stride
        bits = masks + line * mask_stride
        at = tl.arange(0, BLOCKS)
        total = tl.sum(tl.load(sums + at, mask=at < blocks, other=0.0), axis=0)
        # Further away, exp is 0; below float32's least number is only minus infinity.
        away = largest.to(tl.float64) - 746 * tl.load(asked)
        least = tl.maximum(away, -3.4028234663852886e38).to(tl.float32)
        equals = tl.full([], 2147483647, tl.int32)
        for step in range(2):
            is_mass = step == 1
            if (is_mass & by_mass) | ((step == 0) & by_count):
                most = tl.where(is_mass, vocab + 1, tl.maximum(top_k, 1.0)).to(tl.int32)
                goal = tl.where(is_mass, top_p * total, float("inf"))
                border, above, over = _border(
                    x, bits, masked, vocab, best, blocks, asked, largest, least, most, goal,
                    is_mass, BLOCK,
                )  # fmt: skip
                wanted = tl.ceil((goal - over) / weights(border, largest, asked))
                wanted = tl.where(is_mass, tl.maximum(wanted, 1.0), most - above)
                wanted = tl.minimum(wanted, vocab).to(tl.int32)
                # Of the equals at top-k's border, top-p takes no more than top-k left.
                equals = tl.where(border > least, wanted, tl.minimum(wanted, equals))
                least = border
                cut = tl.where(is_mass | (top_p >= 1), tl.load(asked + 3), 0.0)
                total, last = _keep(
                    x, bits, masked, vocab, best, blocks, asked, largest, least, equals, cut, sums,
                    BLOCK,
                )  # fmt: skip
    tl.store(leasts + line, least)
    tl.store(lasts + line, last)
