import pytest
import torch

from ramet.kernels import reference
from ramet.kernels.cpu import gated_mlp


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_equals_reference(rows):
    x, gate_up, down = torch.randn(rows, 8), torch.randn(20, 8), torch.randn(8, 10)
    got = gated_mlp.gated_mlp(x, gate_up, down)
    assert got.is_contiguous()
    torch.testing.assert_close(got, reference.gated_mlp(x, gate_up, down))
