"""The CPU's masks against the reference, and what they refuse."""

from __future__ import annotations

import pytest
import torch

from ramet.kernels import reference
from ramet.kernels.cpu.bitmask import apply_bitmask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "vocab"), [(1, 1), (1, 32), (3, 33), (2, 263), (5, 49152)])
def test_it_equals_the_reference(rows: int, vocab: int, dtype: torch.dtype) -> None:
    logits = torch.randn(rows, vocab, dtype=dtype)
    logits[:, 0] = float("inf")
    words = torch.randint(-(2**31), 2**31 - 1, (rows, (vocab + 31) // 32), dtype=torch.int32)
    wanted = logits.clone()
    reference.apply_bitmask(wanted, words)
    apply_bitmask(logits, words)
    assert torch.equal(logits, wanted)


def test_what_is_not_a_number_stays_so() -> None:
    logits = torch.tensor([[float("nan"), 1.0]])
    apply_bitmask(logits, torch.tensor([[2]], dtype=torch.int32))
    assert logits.isnan().tolist() == [[True, False]]


def test_it_refuses_another_shape() -> None:
    with pytest.raises(ValueError, match="bitmask"):
        apply_bitmask(torch.zeros(2, 33), torch.zeros(2, 1, dtype=torch.int32))
    with pytest.raises(ValueError, match="bitmask"):
        apply_bitmask(torch.zeros(1, 32), torch.zeros(1, 1, dtype=torch.int64))
