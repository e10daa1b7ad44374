"""The fused decoder's linear layers on their own, by as many threads as one likes."""

from __future__ import annotations

import threading

import numpy as np
import torch

from ramet.kernels.cpu.fused import linear
from ramet.kernels.cpu.fused.fields import Linear
from ramet.kernels.cpu.fused.inputs import row_bytes, store_row
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.outputs import GATE
from ramet.kernels.cpu.fused.phases import phase_bytes
from ramet.kernels.cpu.fused.tile import INPUT_ROWS

SENTINEL = 12345.0


@jit
def _linear(line, phase, thread, threads, rows, scratch):
    linear.linear(line, phase, thread, threads, rows, scratch)


@jit
def _store_rows(source, rows, inputs, target, stride):
    for row in range(rows):
        store_row(source + row * inputs * 4, inputs, target + row * stride)


def as_inputs(x):
    """Float32 rows as linear layers read them, and what a tile may read behind them."""
    x = x.float().contiguous()
    rows, inputs = x.shape
    found = torch.full((rows + INPUT_ROWS, row_bytes(inputs)), 255, dtype=torch.uint8)
    _store_rows(x.data_ptr(), rows, inputs, found.data_ptr(), found.stride(0))
    return found


def multiply(x, matrix, mode, bias=None, before=None, threads=1):
    """What the mode makes of `x @ matrix.T`, float32; nothing around it may be written."""
    rows, inputs = x.shape
    outputs = matrix.outputs // 2 if mode == GATE else matrix.outputs
    source = as_inputs(x)
    sentinel = torch.tensor(SENTINEL)
    to = sentinel.repeat(rows + 2, outputs + 3)
    if before is not None:
        to[1 : rows + 1, :outputs] = before
    line, size = np.zeros(len(Linear), dtype=np.int64), phase_bytes(threads)
    # Of the right length, so that whoever reads on reads what isn't ours.
    biases = None if bias is None else bias.float().contiguous().clone()
    for place, value in {
        "MODE": mode, "FROM": source.data_ptr(), "VALUES": matrix.values.data_ptr(),
        "SCALES": matrix.scales.data_ptr(), "INPUTS": inputs, "OUTPUTS": matrix.outputs,
        "BIAS": 0 if biases is None else biases.data_ptr(),
        "TO": to[1].data_ptr(), "TO_STRIDE": to.stride(0) * to.itemsize,
    }.items():  # fmt: skip
        line[Linear[place]] = value
    counters = np.zeros(size // 8 + 8, dtype=np.int64)
    bytes_each = linear.scratch_bytes(inputs)
    scratch = torch.full((threads, bytes_each // 4 + 16), float("nan"))

    def work(thread):
        at = scratch[thread].data_ptr()
        at += -at % 64
        _linear(line.ctypes.data, counters.ctypes.data, thread, threads, rows, at)
        assert scratch[thread, (at - scratch[thread].data_ptr() + bytes_each) // 4 :].isnan().all()

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(1, threads)]
    for worker in workers:
        worker.start()
    work(0)
    for worker in workers:
        worker.join()
    assert (to[0] == sentinel).all()
    assert (to[rows + 1] == sentinel).all()
    assert (to[:, outputs:] == sentinel).all()
    return to[1 : rows + 1, :outputs].float()
