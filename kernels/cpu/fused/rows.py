"""What is done to each row on its own: embedding, norms, the rotary embedding, keys and values."""

from __future__ import annotations

import numpy as np

from ramet.kernels.cpu.fused.attention import write
from ramet.kernels.cpu.fused.hadamard import BLOCK, GROUP, turn_back
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import LANES, f32_array
from ramet.kernels.cpu.fused.linear import activation, activation_view
from ramet.kernels.cpu.fused.tile import ACTIVATION_BYTES


@inlined
def embed(x, values, scales, hidden, token):
    """Write an embedding, a row of a packed matrix `[vocab, hidden]`, to `x`, float32."""
    blocks = (hidden + BLOCK - 1) // BLOCK
    start = values + token // LANES * (LANES * BLOCK * blocks) + token % LANES * GROUP
    scale = f32_array(scales + token * 4, (1,))[0]
    for block in range(blocks):
        done = block * BLOCK
        turn_back(start + done * LANES, scale, x + 4 * done, hidden - done)


@inlined
def _scale_of(row, eps):
    """1 / root mean square."""
    total = np.float32(0.0)
    for j in range(row.shape[0]):
        total += row[j] * row[j]
    return np.float32(1.0) / np.sqrt(total / np.float32(row.shape[0]) + eps)


@inlined
def norm(x, weight, size, eps, out):
    """The root-mean-square norm of a float32 row, float32."""
    row, by = f32_array(x, (size,)), f32_array(weight, (size,))
    scale = _scale_of(row, eps)
    to = f32_array(out, (size,))
    for j in range(size):
        to[j] = row[j] * scale * by[j]


@inlined
def _turn(head, dim, weight, eps, cos, sin):
    """Norm (with a weight, in place) and rotary embedding of one float32 head, in place."""
    row = f32_array(head, (dim,))
    if weight != 0:
        by = f32_array(weight, (dim,))
        scale = _scale_of(row, eps)
        for j in range(dim):
            row[j] = row[j] * scale * by[j]
    half = dim // 2
    c, s = f32_array(cos, (half,)), f32_array(sin, (half,))
    for j in range(half):
        first, second = row[j], row[j + half]
        row[j] = first * c[j] - second * s[j]
        row[j + half] = second * c[j] + first * s[j]


@inlined
def query_row(qkv, heads, dim, padded, group, weight, eps, cos, sin, q, head_stride):
    """Write a row's queries, after norm and rotary embedding, to `q`: its place for KV head 0."""
    for head in range(heads):
        source = qkv + head * dim * 4
        _turn(source, dim, weight, eps, cos, sin)
        row = f32_array(source, (dim,))
        place = head // group * head_stride + head % group * (padded * ACTIVATION_BYTES)
        to = activation_view(q + place, (padded,))
        for j in range(dim):
            to[j] = activation(row[j])


@inlined
def key_value_row(qkv, heads, kv_heads, dim, padded, weight, eps, cos, sin, k, v, blocks, slot):
    """Write a row's keys, after norm and rotary embedding, and its values to their slot."""
    for head in range(kv_heads):
        key = qkv + (heads + head) * dim * 4
        value = qkv + (heads + kv_heads + head) * dim * 4
        _turn(key, dim, weight, eps, cos, sin)
        write(k, v, key, value, head, dim, padded, blocks, slot)
