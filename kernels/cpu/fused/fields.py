"""What a job is told: lines of int64 numbers, most of them addresses, and their places' names.

`decoder` writes them, `step` reads them; they stay where they are from step to step.
"""

from __future__ import annotations

import enum


class Job(enum.IntEnum):
    """A step, or logits, of one model."""

    COUNTERS = 0
    """Address of the phases' counters, zero at the start."""
    PHASE_BYTES = enum.auto()
    """From one phase's counters to the next."""
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
    EPS = enum.auto()
    """Address of float32 `[2]`: the norms' epsilon, and the scale of attention scores."""
    LAYERS = enum.auto()
    """Address of int64 `[layers, len(Layer)]`."""
    EMBEDDING = enum.auto()
    EMBEDDING_SCALES = enum.auto()
    HEAD = enum.auto()
    """Address of the output head's `Linear`."""
    PIECES = enum.auto()
    """Address of int64 `[num_pieces, len(Linear)]`: what of the head is to be computed."""
    NUM_PIECES = enum.auto()
    LARGEST = enum.auto()
    """Address of float32 `[capacity]`: the largest logits, where they are looked for."""
    CHOSEN = enum.auto()
    """Address of int32 `[capacity]`: the tokens that have them."""
    FINAL_NORM = enum.auto()
    COS = enum.auto()
    """Address of float32 `[positions, dim / 2]`."""
    SIN = enum.auto()
    BLOCKS = enum.auto()
    """Blocks of 16 slots that the pool has, spare ones included."""
    KEPT = enum.auto()
    """Address of float32 `[slots, hidden]`: the residual stream before the last layer's MLP."""
    X = enum.auto()
    """float32 `[capacity, hidden]`: the residual stream."""
    NORMS = enum.auto()
    """float32 `[capacity, hidden]`."""
    NORMED = enum.auto()
    """The same as inputs (`inputs`), `[capacity]`."""
    QKV = enum.auto()
    """float32 `[capacity, (heads + 2 * kv_heads) * dim]`; once queries, keys and values are where
    they belong, a row's beginning is its attention, `[heads * dim]`."""
    QUERIES = enum.auto()
    """Activations `[kv_heads, capacity, group, padded]`."""
    ATTENDED = enum.auto()
    """Attention as inputs, `[capacity]`."""
    GATES = enum.auto()
    """float32 `[capacity, inner]`."""
    GATED = enum.auto()
    """The same as inputs, `[capacity]`."""
    PARTS = enum.auto()
    """float32 `[splits, kv_heads, rows * group, padded]`: unnormalised attention."""
    MAXIMA = enum.auto()
    """float32 `[splits, kv_heads, rows * group]`."""
    SUMS = enum.auto()
    """The same shape."""
    SCRATCH = enum.auto()
    SCRATCH_BYTES = enum.auto()
    """Of each thread."""


class Layer(enum.IntEnum):
    """One layer: addresses of what it has; 0 where it has no such thing."""

    INPUT_NORM = 0
    Q_NORM = enum.auto()
    K_NORM = enum.auto()
    MLP_NORM = enum.auto()
    QKV = enum.auto()
    """Address of a `Linear`, as are the next three."""
    OUTPUT = enum.auto()
    GATE_UP = enum.auto()
    DOWN = enum.auto()
    KEYS = enum.auto()
    VALUES = enum.auto()
    WINDOW = enum.auto()
    """Address of a `Window`."""


class Linear(enum.IntEnum):
    """A packed matrix, where its rows come from and where its products go."""

    MODE = 0
    """What becomes of a product; see `outputs`."""
    FROM = enum.auto()
    """Address of its inputs, `[rows]`."""
    VALUES = enum.auto()
    SCALES = enum.auto()
    INPUTS = enum.auto()
    OUTPUTS = enum.auto()
    BIAS = enum.auto()
    TO = enum.auto()
    TO_STRIDE = enum.auto()
    """Bytes of a row there."""


class Window(enum.IntEnum):
    """The work of attention for layers with the same sliding window."""

    SIZE = 0
    """Tokens that a row sees; 0 for all."""
    UNITS = enum.auto()
    """Address of int64 `[units, 5]`."""
    OFFSETS = enum.auto()
    """Address of int64 `[blocks * parts + 1]`."""
    ROW_BLOCKS = enum.auto()
    SPLITS = enum.auto()
    """Tasks of a block and a KV head."""
    PARTS = enum.auto()
    """Of a block."""
    FOLDED = enum.auto()
    """Parts that the first task of a block does."""


NUM_JOB, NUM_LAYER, NUM_LINEAR, NUM_WINDOW = len(Job), len(Layer), len(Linear), len(Window)
