"""A step of the decoder, and logits of computed slots, as phases that the team's threads share."""

from __future__ import annotations

from ramet.kernels.cpu.fused.attention import attend, merge
from ramet.kernels.cpu.fused.fields import NUM_JOB, NUM_LAYER, NUM_WINDOW, Job, Layer, Window
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import f32_array, i64_array, routine
from ramet.kernels.cpu.fused.linear import ADD, BIAS, GATE, STORE, linear
from ramet.kernels.cpu.fused.phases import PHASE_BYTES, finish, take, wait
from ramet.kernels.cpu.fused.rows import (
    embed,
    from_bf16,
    key_value_row,
    norm,
    norm_to_bf16,
    query_row,
)
from ramet.kernels.cpu.fused.tile import ACTIVATION_BYTES

PHASES_PER_LAYER = 9
EMBED, INPUT_NORM, PLACE, MLP_NORM, FINAL_NORM, GATHER = range(6)
"""Phases that do something to each row."""
ROWS_PER_TASK = 4
"""Rows of a task of theirs."""


@inlined
def _row(kind, job, layer, row):
    """What phase `kind` does to one row."""
    hidden = job[Job.HIDDEN]
    x = job[Job.X] + row * hidden * 4
    normed = job[Job.NORMED] + row * hidden * ACTIVATION_BYTES
    eps = f32_array(job[Job.EPS], (2,))[0]
    if kind == EMBED:
        token = i64_array(job[Job.TOKENS] + row * 8, (1,))[0]
        embed(x, job[Job.EMBEDDING], job[Job.EMBEDDING_SCALES], hidden, token)
    elif kind == INPUT_NORM:
        norm(x, layer[Layer.INPUT_NORM], hidden, eps, normed)
    elif kind == PLACE:
        _place(job, layer, row, eps)
    elif kind == MLP_NORM:
        norm(x, layer[Layer.MLP_NORM], hidden, eps, normed)
    else:
        slot = i64_array(job[Job.SLOTS] + row * 8, (1,))[0]
        final = job[Job.FINAL] + slot * hidden * 2
        if kind == FINAL_NORM:
            norm_to_bf16(x, job[Job.FINAL_NORM], hidden, eps, final)
        else:
            from_bf16(final, hidden, normed)


@inlined
def _place(job, layer, row, eps):
    """A row's queries to where attention reads them, its keys and values to their slot."""
    dim, padded = job[Job.DIM], job[Job.PADDED]
    heads, kv_heads = job[Job.HEADS], job[Job.KV_HEADS]
    group = heads // kv_heads
    row_bytes = group * padded * ACTIVATION_BYTES
    qkv = job[Job.QKV] + row * (heads + 2 * kv_heads) * dim * 4
    position = i64_array(job[Job.POSITIONS] + row * 8, (1,))[0]
    slot = i64_array(job[Job.SLOTS] + row * 8, (1,))[0]
    cos = job[Job.COS] + position * (dim // 2 * 4)
    sin = job[Job.SIN] + position * (dim // 2 * 4)
    query_row(
        qkv, heads, dim, padded, group, layer[Layer.Q_NORM], eps, cos, sin,
        job[Job.QUERIES] + row * row_bytes, job[Job.CAPACITY] * row_bytes,
    )  # fmt: skip
    key_value_row(
        qkv, heads, kv_heads, dim, padded, layer[Layer.K_NORM], eps, cos, sin, layer[Layer.KEYS],
        layer[Layer.VALUES], job[Job.BLOCKS], slot,
    )  # fmt: skip


@routine
def each_row(kind, job_at, layer_at, phase):
    """A phase that does something to each row."""
    job, layer = i64_array(job_at, (NUM_JOB,)), i64_array(layer_at, (NUM_LAYER,))
    rows = job[Job.ROWS]
    total = (rows + ROWS_PER_TASK - 1) // ROWS_PER_TASK
    task = take(phase, total)
    while task >= 0:
        for row in range(task * ROWS_PER_TASK, min((task + 1) * ROWS_PER_TASK, rows)):
            _row(kind, job, layer, row)
        finish(phase)
        task = take(phase, total)
    wait(phase, total)


@inlined
def _attend_rows(job_at, layer_at, window_at, phase, scratch):
    """Phase: attention, each task a block of rows, a part of their keys and a KV head."""
    kv_heads = i64_array(job_at, (NUM_JOB,))[Job.KV_HEADS]
    window = i64_array(window_at, (NUM_WINDOW,))
    total = window[Window.ROW_BLOCKS] * window[Window.SPLITS] * kv_heads
    task = take(phase, total)
    while task >= 0:
        attend(job_at, layer_at, window_at, task // kv_heads, task % kv_heads, scratch)
        finish(phase)
        task = take(phase, total)
    wait(phase, total)


@routine
def merge_rows(job_at, window_at, phase):
    """Phase: the parts of attention, put together."""
    job, window = i64_array(job_at, (NUM_JOB,)), i64_array(window_at, (NUM_WINDOW,))
    rows = job[Job.ROWS]
    total = (rows + ROWS_PER_TASK - 1) // ROWS_PER_TASK
    task = take(phase, total)
    while task >= 0:
        first = task * ROWS_PER_TASK
        merge(job, window, first, min(first + ROWS_PER_TASK, rows))
        finish(phase)
        task = take(phase, total)
    wait(phase, total)


@inlined
def _layer(job_at, layer_at, window_at, phase, scratch):
    """One decoder layer, from the residual stream to the residual stream."""
    job, layer = i64_array(job_at, (NUM_JOB,)), i64_array(layer_at, (NUM_LAYER,))
    rows, threads = job[Job.ROWS], job[Job.THREADS]
    hidden, inner = job[Job.HIDDEN], job[Job.INNER]
    attended = job[Job.HEADS] * job[Job.DIM]
    outputs = attended + 2 * job[Job.KV_HEADS] * job[Job.DIM]
    bias = layer[Layer.QKV_BIAS]
    each_row(INPUT_NORM, job_at, layer_at, phase)
    linear(
        BIAS if bias != 0 else STORE, phase + PHASE_BYTES, threads, rows, job[Job.NORMED],
        hidden * ACTIVATION_BYTES, layer[Layer.QKV], layer[Layer.QKV_SCALES], hidden, outputs, bias,
        job[Job.QKV], outputs * 4, scratch,
    )  # fmt: skip
    each_row(PLACE, job_at, layer_at, phase + 2 * PHASE_BYTES)
    _attend_rows(job_at, layer_at, window_at, phase + 3 * PHASE_BYTES, scratch)
    merge_rows(job_at, window_at, phase + 4 * PHASE_BYTES)
    linear(
        ADD, phase + 5 * PHASE_BYTES, threads, rows, job[Job.ATTENDED], attended * ACTIVATION_BYTES,
        layer[Layer.OUTPUT], layer[Layer.OUTPUT_SCALES], attended, hidden, 0, job[Job.X],
        hidden * 4, scratch,
    )  # fmt: skip
    each_row(MLP_NORM, job_at, layer_at, phase + 6 * PHASE_BYTES)
    linear(
        GATE, phase + 7 * PHASE_BYTES, threads, rows, job[Job.NORMED], hidden * ACTIVATION_BYTES,
        layer[Layer.GATE_UP], layer[Layer.GATE_UP_SCALES], hidden, 2 * inner, 0, job[Job.GATED],
        inner * ACTIVATION_BYTES, scratch,
    )  # fmt: skip
    linear(
        ADD, phase + 8 * PHASE_BYTES, threads, rows, job[Job.GATED], inner * ACTIVATION_BYTES,
        layer[Layer.DOWN], layer[Layer.DOWN_SCALES], inner, hidden, 0, job[Job.X], hidden * 4,
        scratch,
    )  # fmt: skip


@inlined
def step(address, thread):
    """This thread's part of a step: all rows through all layers."""
    job = i64_array(address, (NUM_JOB,))
    scratch = job[Job.SCRATCH] + thread * job[Job.SCRATCH_BYTES]
    phase = job[Job.COUNTERS]
    each_row(EMBED, address, 0, phase)
    phase += PHASE_BYTES
    for number in range(job[Job.NUM_LAYERS]):
        layer = job[Job.LAYERS] + number * (8 * NUM_LAYER)
        window = i64_array(layer, (NUM_LAYER,))[Layer.WINDOW]
        _layer(address, layer, job[Job.WINDOWS] + window * (8 * NUM_WINDOW), phase, scratch)
        phase += PHASES_PER_LAYER * PHASE_BYTES
    each_row(FINAL_NORM, address, 0, phase)


@inlined
def logits(address, thread):
    """This thread's part of logits: rows of the pool times the output head."""
    job = i64_array(address, (NUM_JOB,))
    rows, hidden, vocab = job[Job.ROWS], job[Job.HIDDEN], job[Job.VOCAB]
    scratch = job[Job.SCRATCH] + thread * job[Job.SCRATCH_BYTES]
    phase = job[Job.COUNTERS]
    each_row(GATHER, address, 0, phase)
    linear(
        STORE, phase + PHASE_BYTES, job[Job.THREADS], rows, job[Job.NORMED],
        hidden * ACTIVATION_BYTES, job[Job.HEAD], job[Job.HEAD_SCALES], hidden, vocab, 0,
        job[Job.LOGITS], vocab * 4, scratch,
    )  # fmt: skip
