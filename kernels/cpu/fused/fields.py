"""What a job is told: lines of int64 numbers, most of them addresses, and their places' names.

`decoder` writes them, `step` reads them; they stay where they are from step to step.
"""

from __future__ import annotations

import enum


class Job(enum.IntEnum):
    """A step, or logits, of one model."""

    COUNTERS = 0
    """Address of the phases' counters, zero at the start."""
    THREADS = enum.auto()
    ROWS = enum.auto()
    CAPACITY = enum.auto()
    """Rows that the buffers are for."""
    TOKENS = enum.auto()
    """Address of int64 `[rows]`."""
    POSITIONS = enum.auto()
    """Address of int64 `[rows]`."""
    SLOTS = enum.auto()
    """Address of int64 `[rows]`."""
    NUM_LAYERS = enum.auto()
    HIDDEN = enum.auto()
    HEADS = enum.auto()
    KV_HEADS = enum.auto()
    DIM = enum.auto()
    PADDED = enum.auto()
    """The head size, filled up to whole panels."""
    INNER = enum.auto()
    VOCAB = enum.auto()
    EPS = enum.auto()
    """Address of float32 `[2]`: the norms' epsilon, and the scale of attention scores."""
    LAYERS = enum.auto()
    """Address of int64 `[layers, len(Layer)]`."""
    WINDOWS = enum.auto()
    """Address of int64 `[windows, len(Window)]`."""
    EMBEDDING = enum.auto()
    EMBEDDING_SCALES = enum.auto()
    HEAD = enum.auto()
    HEAD_SCALES = enum.auto()
    FINAL_NORM = enum.auto()
    COS = enum.auto()
    """Address of float32 `[positions, dim / 2]`."""
    SIN = enum.auto()
    BLOCKS = enum.auto()
    """Blocks of 16 slots that the pool has, spare ones included."""
    FINAL = enum.auto()
    """Address of bfloat16 `[slots, hidden]`: what the head reads."""
    X = enum.auto()
    """float32 `[capacity, hidden]`: the residual stream."""
    NORMED = enum.auto()
    """Activations `[capacity, hidden]`."""
    QKV = enum.auto()
    """float32 `[capacity, (heads + 2 * kv_heads) * dim]`."""
    QUERIES = enum.auto()
    """Activations `[kv_heads, capacity, group, padded]`."""
    ATTENDED = enum.auto()
    """Activations `[capacity, heads * dim]`."""
    GATED = enum.auto()
    """Activations `[capacity, inner]`."""
    PARTS = enum.auto()
    """float32 `[splits, kv_heads, capacity * group, padded]`: unnormalised attention."""
    MAXIMA = enum.auto()
    """float32 `[splits, kv_heads, capacity * group]`."""
    SUMS = enum.auto()
    """The same shape."""
    BLIND = enum.auto()
    """Address of an int64: how many queries saw no key."""
    SCRATCH = enum.auto()
    SCRATCH_BYTES = enum.auto()
    """Of each thread."""
    LOGITS = enum.auto()
    """float32 `[rows, vocab]`."""


class Layer(enum.IntEnum):
    """One layer: addresses of weights, scales and memory; 0 where it has no such thing."""

    INPUT_NORM = 0
    QKV = enum.auto()
    QKV_SCALES = enum.auto()
    QKV_BIAS = enum.auto()
    Q_NORM = enum.auto()
    K_NORM = enum.auto()
    OUTPUT = enum.auto()
    OUTPUT_SCALES = enum.auto()
    MLP_NORM = enum.auto()
    GATE_UP = enum.auto()
    GATE_UP_SCALES = enum.auto()
    DOWN = enum.auto()
    DOWN_SCALES = enum.auto()
    KEYS = enum.auto()
    VALUES = enum.auto()
    WINDOW = enum.auto()
    """Which line of the windows' table is this layer's."""


class Window(enum.IntEnum):
    """The work of attention for layers with the same sliding window."""

    SIZE = 0
    """Tokens that a row sees; 0 for all."""
    UNITS = enum.auto()
    """Address of int64 `[units, 5]`."""
    OFFSETS = enum.auto()
    """Address of int64 `[blocks * splits + 1]`."""
    ROW_BLOCKS = enum.auto()
    SPLITS = enum.auto()


NUM_JOB, NUM_LAYER, NUM_WINDOW = len(Job), len(Layer), len(Window)
