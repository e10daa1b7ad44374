"""A step of the decoder, and logits of computed slots, as phases that the team's threads share."""

from __future__ import annotations

from ramet.kernels.cpu.fused.attention import ask_for, attend, merge
from ramet.kernels.cpu.fused.fields import (
    NUM_JOB,
    NUM_LAYER,
    NUM_LINEAR,
    NUM_WINDOW,
    Job,
    Layer,
    Linear,
    Window,
)
from ramet.kernels.cpu.fused.inputs import bytes_of_row, store_row
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import f32_array, i64_array, routine
from ramet.kernels.cpu.fused.likeliest import choose
from ramet.kernels.cpu.fused.linear import ahead_of, linear
from ramet.kernels.cpu.fused.outputs import LARGEST
from ramet.kernels.cpu.fused.phases import finish, take, wait
from ramet.kernels.cpu.fused.rows import (
    embed,
    key_value_row,
    norm,
    query_row,
)
from ramet.kernels.cpu.fused.tile import ACTIVATION_BYTES, ROWS

PHASES_PER_LAYER = 10
EMBED, INPUT_NORM, PLACE, MLP_NORM, GATED, KEEP, FETCH, FINAL_NORM = range(8)
"""Phases that do something to each row."""
ROWS_PER_TASK = 4
"""Rows of a task of theirs."""


@inlined
def _row(kind, job, layer, row):
    """What phase `kind` does to one row."""
    hidden, inner = job[Job.HIDDEN], job[Job.INNER]
    x = job[Job.X] + row * hidden * 4
    eps = f32_array(job[Job.EPS], (2,))[0]
    if kind == EMBED:
        token = i64_array(job[Job.TOKENS] + row * 8, (1,))[0]
        embed(x, job[Job.EMBEDDING], job[Job.EMBEDDING_SCALES], hidden, token)
    elif kind in (INPUT_NORM, MLP_NORM):
        if kind == INPUT_NORM and job[Job.ROWS] <= ROWS:
            _ask_for_slot(job, layer, row)
        weight = layer[Layer.INPUT_NORM] if kind == INPUT_NORM else layer[Layer.MLP_NORM]
        normed, out = job[Job.NORMS] + row * hidden * 4, bytes_of_row(hidden) * row
        norm(x, weight, hidden, eps, normed)
        store_row(normed, hidden, job[Job.NORMED] + out)
    elif kind == PLACE:
        _place(job, layer, row, eps)
    elif kind == GATED:
        gates, out = job[Job.GATES] + row * inner * 4, bytes_of_row(inner) * row
        store_row(gates, inner, job[Job.GATED] + out)
    elif kind == FINAL_NORM:
        normed = job[Job.NORMS] + row * hidden * 4
        norm(x, job[Job.FINAL_NORM], hidden, eps, normed)
        store_row(normed, hidden, job[Job.NORMED] + bytes_of_row(hidden) * row)
    else:
        slot = i64_array(job[Job.SLOTS] + row * 8, (1,))[0]
        kept = f32_array(job[Job.KEPT] + slot * hidden * 4, (hidden,))
        here = f32_array(x, (hidden,))
        for j in range(hidden):
            if kind == KEEP:
                kept[j] = here[j]
            else:
                here[j] = kept[j]


@inlined
def _ask_for_slot(job, layer, row):
    """Ask for the lines that a row's keys and values will be written to: some hundred of them,
    each elsewhere, which the processor would fetch one by one."""
    slot = i64_array(job[Job.SLOTS] + row * 8, (1,))[0]
    padded, blocks = job[Job.PADDED], job[Job.BLOCKS]
    for head in range(job[Job.KV_HEADS]):
        ask_for(layer[Layer.KEYS], layer[Layer.VALUES], head, padded, blocks, slot)


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
def each_row(kind, job_at, layer_at, following, phase, thread):
    """A phase that does something to each row; `following` is the `Linear` that is next."""
    job, layer = i64_array(job_at, (NUM_JOB,)), i64_array(layer_at, (NUM_LAYER,))
    rows, threads = job[Job.ROWS], job[Job.THREADS]
    total = (rows + ROWS_PER_TASK - 1) // ROWS_PER_TASK
    task = take(phase, total, thread, threads)
    while task >= 0:
        for row in range(task * ROWS_PER_TASK, min((task + 1) * ROWS_PER_TASK, rows)):
            _row(kind, job, layer, row)
        finish(phase)
        task = take(phase, total, thread, threads)
    ahead, end = ahead_of(following, rows, thread, threads)
    wait(phase, total, ahead, end)


@routine
def attention(job_at, layer_at, phase, thread, scratch):
    """Two phases: tasks of a block of rows, a part of their keys and a KV head; then the parts of
    each row put together."""
    job, layer = i64_array(job_at, (NUM_JOB,)), i64_array(layer_at, (NUM_LAYER,))
    window = i64_array(layer[Layer.WINDOW], (NUM_WINDOW,))
    rows, threads, kv_heads = job[Job.ROWS], job[Job.THREADS], job[Job.KV_HEADS]
    ahead, end = ahead_of(layer[Layer.OUTPUT], rows, thread, threads)
    total = window[Window.ROW_BLOCKS] * window[Window.SPLITS] * kv_heads
    task = take(phase, total, thread, threads)
    while task >= 0:
        attend(job, layer, window, task // kv_heads, task % kv_heads, scratch)
        finish(phase)
        task = take(phase, total, thread, threads)
    wait(phase, total, ahead, end)
    phase += job[Job.PHASE_BYTES]
    total = (rows + ROWS_PER_TASK - 1) // ROWS_PER_TASK
    task = take(phase, total, thread, threads)
    while task >= 0:
        first = task * ROWS_PER_TASK
        merge(job, window, first, min(first + ROWS_PER_TASK, rows))
        finish(phase)
        task = take(phase, total, thread, threads)
    wait(phase, total, ahead, end)


@inlined
def _mlp(address, at, phase, thread, scratch):
    """Four phases: the second half of the layer at `at`."""
    job, layer = i64_array(address, (NUM_JOB,)), i64_array(at, (NUM_LAYER,))
    rows, threads, size = job[Job.ROWS], job[Job.THREADS], job[Job.PHASE_BYTES]
    each_row(MLP_NORM, address, at, layer[Layer.GATE_UP], phase, thread)
    linear(layer[Layer.GATE_UP], phase + size, thread, threads, rows, scratch)
    each_row(GATED, address, at, layer[Layer.DOWN], phase + 2 * size, thread)
    linear(layer[Layer.DOWN], phase + 3 * size, thread, threads, rows, scratch)


@inlined
def step(address, thread):
    """A thread's part of a step: all rows through all layers, up to the last one's MLP.

    What comes after it is for rows alone whose logits somebody wants: most of a prompt's are never
    asked for.
    """
    job = i64_array(address, (NUM_JOB,))
    rows, threads, size = job[Job.ROWS], job[Job.THREADS], job[Job.PHASE_BYTES]
    scratch = job[Job.SCRATCH] + thread * job[Job.SCRATCH_BYTES]
    at, phase = job[Job.LAYERS], job[Job.COUNTERS]
    last = at + (job[Job.NUM_LAYERS] - 1) * 8 * NUM_LAYER
    each_row(EMBED, address, 0, job[Job.HEAD], phase, thread)
    phase += size
    while True:
        layer = i64_array(at, (NUM_LAYER,))
        qkv = layer[Layer.QKV]
        each_row(INPUT_NORM, address, at, qkv, phase, thread)
        linear(qkv, phase + size, thread, threads, rows, scratch)
        each_row(PLACE, address, at, layer[Layer.OUTPUT], phase + 2 * size, thread)
        attention(address, at, phase + 3 * size, thread, scratch)
        linear(layer[Layer.OUTPUT], phase + 5 * size, thread, threads, rows, scratch)
        phase += 6 * size
        if at == last:
            break
        _mlp(address, at, phase, thread, scratch)
        at, phase = at + 8 * NUM_LAYER, phase + 4 * size
    each_row(KEEP, address, 0, layer[Layer.GATE_UP], phase, thread)


@inlined
def logits(address, thread):
    """A thread's part of logits: rows that were kept go on from the last layer's MLP to pieces of
    the output head."""
    job = i64_array(address, (NUM_JOB,))
    size, piece = job[Job.PHASE_BYTES], job[Job.PIECES]
    scratch = job[Job.SCRATCH] + thread * job[Job.SCRATCH_BYTES]
    at, phase = job[Job.LAYERS] + (job[Job.NUM_LAYERS] - 1) * 8 * NUM_LAYER, job[Job.COUNTERS]
    gate_up = i64_array(at, (NUM_LAYER,))[Layer.GATE_UP]
    each_row(FETCH, address, 0, gate_up, phase, thread)
    _mlp(address, at, phase + size, thread, scratch)
    each_row(FINAL_NORM, address, 0, piece, phase + 5 * size, thread)
    phase += 6 * size
    for _ in range(job[Job.NUM_PIECES]):
        linear(piece, phase, thread, job[Job.THREADS], job[Job.ROWS], scratch)
        phase, piece = phase + size, piece + 8 * NUM_LINEAR
    if i64_array(job[Job.PIECES], (NUM_LINEAR,))[Linear.MODE] == LARGEST:
        choose(address, phase, thread)
