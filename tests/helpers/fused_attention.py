"""The fused decoder's attention on its own: one thread that does all tasks of a layer, in turn."""

from __future__ import annotations

import numpy as np
import torch

from ramet.kernels.cpu.fused.attention import attend, merge, scratch_bytes, write
from ramet.kernels.cpu.fused.fields import Job, Layer, Window
from ramet.kernels.cpu.fused.inputs import row_bytes
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import DOT, i64_array
from ramet.kernels.cpu.fused.tile import ROWS
from ramet.kernels.cpu.fused.units import build_units
from ramet.kernels.plan import AttentionPlan

SPARE_BLOCKS = 4
SIZES = (len(Job), len(Layer), len(Window))
ACTIVATIONS = torch.bfloat16 if DOT else torch.float32


@jit
def _run(job, layer, window, first, last, scratch):
    job, layer = i64_array(job, (SIZES[0],)), i64_array(layer, (SIZES[1],))
    window = i64_array(window, (SIZES[2],))
    kv_heads = job[Job.KV_HEADS]
    for task in range(first, last):
        attend(job, layer, window, task // kv_heads, task % kv_heads, scratch)


@jit
def _merge(job, window, first, last):
    merge(i64_array(job, (SIZES[0],)), i64_array(window, (SIZES[2],)), first, last)


@jit
def _write_all(k, v, keys, values, kv_heads, dim, padded, blocks, slots):
    for slot in range(slots):
        for head in range(kv_heads):
            at = (slot * kv_heads + head) * dim * 4
            write(k, v, keys + at, values + at, head, dim, padded, blocks, slot)


class FusedAttention:
    """One layer's memory and buffers for a plan; `run` computes it as often as one likes."""

    def __init__(self, q, k, v, plan: AttentionPlan, scale, window=None, threads=1):
        rows, heads, dim = q.shape
        slots, kv_heads, _ = k.shape
        group, padded = heads // kv_heads, -(-dim // 32) * 32
        blocks = -(-slots // 16) + SPARE_BLOCKS
        self.q, self.plan = q, plan
        k, v = k.float().contiguous(), v.float().contiguous()
        self.keys, self.values = torch.zeros(2, kv_heads * blocks * 16 * padded, dtype=torch.int16)
        _write_all(
            self.keys.data_ptr(), self.values.data_ptr(), k.data_ptr(), v.data_ptr(), kv_heads,
            dim, padded, blocks, slots,
        )  # fmt: skip
        self.queries = torch.zeros(kv_heads * rows * group + ROWS, padded, dtype=ACTIVATIONS)
        ours = q.to(ACTIVATIONS).view(rows, kv_heads, group, dim).transpose(0, 1)
        self.queries[: kv_heads * rows * group, :dim] = ours.reshape(-1, dim)
        self.positions = plan.row_pos.copy()
        self.work = build_units(
            np.ascontiguousarray(plan.items), self.positions, group, kv_heads, window or 0,
            threads,
        )  # fmt: skip
        parts = self.work.splits * kv_heads * rows * group
        # What was there before must not matter.
        self.parts = torch.full((parts, padded), float("nan"))
        self.maxima, self.sums = torch.full((2, parts), float("nan"))
        self.rows = torch.full((rows, (heads + 2 * kv_heads) * dim), float("nan"))
        self.attended = torch.empty(rows, row_bytes(heads * dim), dtype=torch.uint8)
        self.floats = np.array([0.0, scale], dtype=np.float32)
        self.scratch = [torch.empty(scratch_bytes(padded), dtype=torch.int8) for _ in range(2)]
        for scratch in self.scratch:
            scratch.view(torch.float32).fill_(float("nan"))
        self.job, self.layer, self.window = (np.zeros(size, dtype=np.int64) for size in SIZES)
        self._tell(rows, heads, kv_heads, dim, padded, blocks, window or 0)
        self.tasks = self.work.blocks * self.work.splits * kv_heads

    def _tell(self, rows, heads, kv_heads, dim, padded, blocks, window):
        for name, value in {
            "ROWS": rows, "CAPACITY": rows, "HEADS": heads, "KV_HEADS": kv_heads, "DIM": dim,
            "PADDED": padded, "BLOCKS": blocks, "POSITIONS": self.positions.ctypes.data,
            "EPS": self.floats.ctypes.data, "QUERIES": self.queries.data_ptr(),
            "ATTENDED": self.attended.data_ptr(), "QKV": self.rows.data_ptr(),
            "PARTS": self.parts.data_ptr(),
            "MAXIMA": self.maxima.data_ptr(), "SUMS": self.sums.data_ptr(),
        }.items():  # fmt: skip
            self.job[Job[name]] = value
        self.layer[Layer.KEYS] = self.keys.data_ptr()
        self.layer[Layer.VALUES] = self.values.data_ptr()
        work = self.work
        self.window[Window.SIZE], self.window[Window.SPLITS] = window, work.splits
        self.window[Window.PARTS], self.window[Window.FOLDED] = work.parts, work.folded
        self.window[Window.UNITS] = work.units.ctypes.data
        self.window[Window.OFFSETS] = work.offsets.ctypes.data

    def run_tasks(self, first, last, thread=0):
        job, layer, window = (a.ctypes.data for a in (self.job, self.layer, self.window))
        _run(job, layer, window, first, last, self.scratch[thread].data_ptr())

    def merge(self):
        _merge(self.job.ctypes.data, self.window.ctypes.data, 0, self.plan.num_rows)

    def run(self):
        self.run_tasks(0, self.tasks)
        self.merge()
        found = self.rows[:, : self.q.shape[1] * self.q.shape[2]]
        return found.reshape(self.q.shape).to(self.q.dtype)


def tree_attention(q, k, v, plan, scale, window=None, threads=1):
    """As `reference.tree_attention`, on inputs rounded to bfloat16."""
    return FusedAttention(q, k, v, plan, scale, window, threads).run()
