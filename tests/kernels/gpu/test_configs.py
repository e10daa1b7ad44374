"""The table of sizes has a line for whatever is asked, and refusals say what was given."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")


def test_a_tile_is_what_the_tensor_cores_take():
    from ramet.kernels.gpu.configs import ARCHITECTURES, DTYPES, block_dim, tiles
    from ramet.kernels.gpu.tree_attention import HEAD_DIMS

    for arch in ARCHITECTURES:
        for dtype in DTYPES:
            for dim in HEAD_DIMS:
                small, large = tiles(arch, block_dim(dim), dtype)
                assert 16 <= small.lines <= large.lines
                for number in (small.lines, small.keys, large.lines, large.keys):
                    assert number >= 16
                    assert number & (number - 1) == 0
                assert block_dim(dim) in (64, 128, 256)
                assert block_dim(dim) >= dim


def test_an_architecture_is_of_the_table(device):
    from ramet.kernels.gpu.configs import ARCHITECTURES, architecture, num_processors

    assert architecture(device) in ARCHITECTURES
    assert num_processors(device) > 0


def test_a_refusal_says_what_was_given():
    from ramet.kernels.gpu.configs import check

    check("fine", True, x=torch.zeros(2))
    with pytest.raises(ValueError, match=r"op: x torch.float32 \[2, 3\] on cpu"):
        check("op", False, x=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="on meta"):
        check("op", True, x=torch.zeros(1), y=torch.zeros(1, device="meta"))
