"""Whether this machine's compiler and processor do what the kernels are made of."""

from __future__ import annotations

import numpy as np
import torch

from ramet.kernels.cpu.fused.inputs import GROUP, row_bytes, store_row
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import VNNI
from ramet.kernels.cpu.fused.tile import INPUT_ROWS, PANEL, times_bytes
from ramet.kernels.cpu.fused.weights import pack
from ramet.kernels.decoder import DecoderShape, LayerTensors
from ramet.kernels.draws import Draws


@jit
def _multiply(floats, a, b, c, rows, steps):
    for row in range(floats.shape[0]):
        store_row(floats[row].ctypes.data, floats.shape[1], a[row].ctypes.data)
    times_bytes(
        rows, a.ctypes.data, a.strides[0], b.ctypes.data, b.strides[0], steps, c.ctypes.data,
        c.strides[0], 0,
    )  # fmt: skip


def product_is_right() -> bool:
    """Multiply a panel by each number of rows of a tile, and compare with plain sums."""
    inputs, rows = 8, INPUT_ROWS
    matrix = (np.arange(PANEL * inputs) * 37 % 255 - 127).reshape(PANEL, inputs)
    floats = (np.arange(rows * inputs, dtype=np.float32).reshape(rows, inputs) - 40) / 8
    packed = pack(torch.from_numpy(matrix.astype(np.float32)))
    b, a = packed.values.numpy(), np.zeros((rows, row_bytes(inputs)), dtype=np.uint8)
    wanted = floats @ (packed.dequantised().numpy() / packed.scales.numpy()[:, None]).T
    for count in range(1, rows + 1):
        c = np.zeros((rows, PANEL), dtype=np.float32)
        _multiply(floats, a, b, c, count, inputs // (GROUP if VNNI else 2))
        # Rounding an input to 16 bits changes it by 8e-5 at most.
        if not np.allclose(c[:count], wanted[:count], rtol=1e-6, atol=0.1):
            return False
    return True


def use_all() -> None:
    """Run every kernel once, on a decoder of no use: what is compiled then stays in the folder."""
    from ramet.kernels.cpu.fused import decoder, sampling

    shape = DecoderShape(1, 32, 2, 1, 16, 32, 40, 1e-5)
    square = torch.eye(32)
    layer = LayerTensors(
        input_norm=torch.ones(32),
        qkv=torch.eye(64, 32),
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        output=square,
        mlp_norm=torch.ones(32),
        gate_up=torch.eye(64, 32),
        down=square,
        window=None,
    )
    model = decoder.Decoder(
        shape, [layer], torch.eye(40, 32), torch.ones(32), None, _no_turn, num_slots=16, threads=1
    )
    items = np.array([[0], [1], [0], [1], [0]], dtype=np.int64)
    model.forward([0], [0], [0], items)
    logits, first = model.logits([0]), torch.tensor([0])
    sampling.greedy(logits, [0])
    asked = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    half = torch.tensor([[0.5]], dtype=torch.float64)
    sampling.draw(logits, Draws(first, asked, half, torch.zeros((0, 2), dtype=torch.int64)))


def _no_turn(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.ones(len(positions), 16)
    return table, torch.zeros_like(table)
