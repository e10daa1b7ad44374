from ramet.runtime.simulation.tokens import Tokens, length_of, make_key, run


def test_equal_runs_are_equal_and_others_differ_at_once() -> None:
    tokens = Tokens()
    assert tokens.run(run(3, 10)) == tokens.run(run(3, 20))[:10]
    firsts = {tokens.run(run(seed, 1))[0] for seed in range(5000)}
    assert len(firsts) == 5000


def test_ids_fit_where_they_must() -> None:
    assert all(300 < t < 2**31 for t in Tokens().run(run(2**40, 500)))
    assert all(0 <= t < 259 for t in Tokens(259).run(run(2**40, 500)))
    assert 0 <= Tokens(259).sampled(make_key(7, 9), 3) < 259


def test_a_key_has_its_length_and_its_own_tokens() -> None:
    key = make_key(12345, 678)
    assert length_of(key) == 678
    tokens = Tokens()
    assert tokens.sampled(key, 0) != tokens.sampled(make_key(12346, 678), 0)
    assert tokens.sampled(key, 1) == tokens.sampled(key, 1)
