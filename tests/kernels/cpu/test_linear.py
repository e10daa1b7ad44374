import torch

from ramet.kernels.cpu import linear


def test_only_few_rows_of_float32_are_turned():
    assert not linear.turned(torch.zeros(1, 4))
    assert linear.turned(torch.zeros(2, 4))
    assert not linear.turned(torch.zeros(linear.MOST_ROWS + 1, 4))
    assert not linear.turned(torch.zeros(2, 4, dtype=torch.float64))


def test_turned_product_equals_plain():
    x, weight, bias = torch.randn(5, 7), torch.randn(9, 7), torch.randn(9)
    torch.testing.assert_close(linear.linear(x, weight, None), x @ weight.T)
    torch.testing.assert_close(linear.linear(x, weight, bias), x @ weight.T + bias)
    assert linear.linear(x, weight, bias).shape == (5, 9)
