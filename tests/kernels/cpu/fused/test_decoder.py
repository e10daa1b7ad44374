"""A whole decoder between pages that nobody may touch: its kernels stay within their memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

SCRIPT = """
import random, sys
sys.path[:0] = [sys.argv[1] + "/tests/helpers"]
import numpy as np, torch
from ramet.kernels.cpu import fused
from ramet.runtime.config import cache_dir
fused.prepare(cache_dir() / "kernels")
from guarded_memory import guarded
from ramet.kernels.cpu.fused.decoder import Decoder
from ramet.kernels.decoder import DecoderShape, LayerTensors

SIDE = sys.argv[2]
class Guarded(Decoder):
    def _keep(self, name, tensor):
        return super()._keep(name, guarded(tensor, SIDE))

def lines_of(items):
    return np.array(items, dtype=np.int64).reshape(-1, 5).T.copy()

def make(kind, shape, tied, extras, slots):
    g = torch.Generator().manual_seed(0)
    def randn(*size):
        return torch.randn(*size, generator=g) * size[-1] ** -0.5
    h, d = shape.hidden, shape.head_dim
    out = (shape.heads + 2 * shape.kv_heads) * d
    def layers():
        for number in range(shape.num_layers):
            yield LayerTensors(
                torch.ones(h), randn(out, h), randn(out) if extras else None,
                torch.ones(d) if extras else None, torch.ones(d) if extras else None,
                randn(h, shape.heads * d), torch.ones(h), randn(2 * shape.inner, h),
                randn(h, shape.inner), 7 if number == 1 else None)
    def rope(positions):
        angle = positions.unsqueeze(1) / 100 ** (torch.arange(d // 2) / d)
        angle = torch.cat((angle, angle), -1)
        return angle.cos(), angle.sin()
    head = None if tied else randn(shape.vocab, h)
    return kind(shape, layers(), randn(shape.vocab, h), torch.ones(h), head, rope, slots, 2)

def run(decoder, vocab, slots):
    found, source = [], random.Random(0)
    for rows in (1, 2, 13, 14, 15, 70, 5, slots):
        # As far back in the pool as they go, and the ends of the vocabulary.
        first = slots - rows
        tokens = [0, vocab - 1] * rows
        decoder.forward(tokens[:rows], range(rows), range(first, slots),
                        lines_of([(first, rows, 0, rows, 0)]))
        found.append(decoder.logits(list(range(first, slots))).clone())
        lines = source.sample(range(slots), min(rows, slots - 1))  # Slots here and there.
        items = [(slot, 1, row, row + 1, 2047) for row, slot in enumerate(lines)]
        decoder.forward(tokens[: len(lines)], [2047] * len(lines), lines, lines_of(items))
        found.append(decoder.logits(lines).clone())
        assert decoder.likeliest(lines)[0] == found[-1].argmax(-1).tolist()
        for bit in (0, vocab // 2, vocab - 1):
            mask = (1 << bit).to_bytes((vocab + 31) // 32 * 4, "little")
            found.append(decoder.logits(lines, [mask])[:, bit].clone())
    return found

# layers, hidden, heads, kv_heads, head_dim, inner, vocab, eps; tied; biases and head norms; slots
for sizes, tied, extras, slots in [
    ((2, 64, 4, 2, 16, 160, 259, 1e-5), False, False, 257),
    ((2, 72, 9, 3, 8, 50, 61, 1e-5), True, True, 300),
    ((3, 34, 3, 1, 6, 18, 33, 1e-5), False, True, 96),
    ((2, 130, 2, 2, 80, 2, 32, 1e-5), True, False, 71),
    ((1, 2, 5, 1, 128, 34, 1, 1e-5), True, True, 80),
]:
    shape = DecoderShape(*sizes)
    plain, ours = (make(kind, shape, tied, extras, slots) for kind in (Decoder, Guarded))
    for got, wanted in zip(run(ours, shape.vocab, slots), run(plain, shape.vocab, slots)):
        assert torch.isfinite(wanted).all()
        assert torch.equal(got, wanted), (sizes, len(got))
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by mprotect")
@pytest.mark.parametrize("side", ["after", "before"])
def test_nothing_beside_its_memory_is_touched(side):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SCRIPT, str(ROOT), side],
        env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr[-3000:]
