import pytest
import torch

from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.arithmetic import torch_arithmetic
from ramet.runtime.sampling.rows import SampleRow


def test_it_is_the_real_functions() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 0.0]])
    real = torch_arithmetic()
    rows = [SampleRow(row, SamplingParams(temperature=0), 0, 0) for row in (1, 0)]
    assert [s.token for s in real.sample(logits, rows)] == [0, 1]
    assert [s.token for s in real.greedy([1, 0], [3.0, 2.0])] == [1, 0]
    expected = torch.log_softmax(logits, -1)
    assert real.token_logprobs(logits, [2, 1]) == [expected[0, 2].item(), expected[1, 1].item()]
    assert real.pair_logprobs(logits, [[0, 1], []]) == [expected[0, :2].tolist(), []]
    assert real.top_logprobs(logits, [1, 0]) == [[(expected[0, 1].item(), 1)], []]
    masses = real.log_masses(logits, [[0, 1, 2], []])
    assert masses == [pytest.approx(0.0, abs=1e-6), float("-inf")]
