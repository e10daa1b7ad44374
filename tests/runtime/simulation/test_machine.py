from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.rows import SampleRow
from ramet.runtime.simulation.machine import Clock, SampleTimes, SimulatedArithmetic
from ramet.runtime.simulation.tokens import Tokens, make_key


def test_samples_are_what_the_key_says_and_end_when_it_says() -> None:
    clock, tokens = Clock(), Tokens()
    times = SampleTimes(clock)
    arithmetic = SimulatedArithmetic(tokens, 2, times)
    key = make_key(9, 3)
    drawn = []
    for index in range(4):
        clock.now += 1.5
        drawn += arithmetic.sample(None, [SampleRow(0, SamplingParams(), key, index)])
    assert [s.token for s in drawn] == [*(tokens.sampled(key, i) for i in range(3)), 2]
    assert times.first == {key: 1.5}
    assert list(times.gaps) == [1.5] * 3
    assert clock() == 6.0


def test_scores_decline_from_the_first_choice_on() -> None:
    real = SimulatedArithmetic(Tokens(), 2, SampleTimes(Clock())).as_arithmetic()
    assert real.pair_logprobs([5], [[1, 2]]) == [[-1.0, -1.0625]]
    assert real.log_masses([5], [[1]]) == [0.0]
