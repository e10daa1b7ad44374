from __future__ import annotations

from itertools import pairwise

from ramet.runtime.sampling.streams import stream_key, uniform


def test_uniform_is_splitmix64() -> None:
    # The published first outputs of SplitMix64 with state 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [uniform(1234567, i) for i in range(3)] == [(x >> 11) / 2**53 for x in expected]


def test_uniform_lies_in_the_half_open_interval_and_is_even() -> None:
    values = [uniform(key, index) for key in (0, 1, 2**64 - 1) for index in range(4000)]
    assert all(0 <= v < 1 for v in values)
    bins = [0] * 20
    for v in values:
        bins[int(v * 20)] += 1
    expected = len(values) / 20
    assert sum((b - expected) ** 2 / expected for b in bins) < 43.8  # p = 0.001 at 19 degrees
    assert len(set(values)) == len(values)


def test_successive_values_are_uncorrelated() -> None:
    for step in (0, 1):  # along one stream, and across streams of neighbouring names
        values = [
            uniform(stream_key(7, "0.1", 3, sample * step), 0 if step else sample)
            for sample in range(4000)
        ]
        covariance = sum((a - 0.5) * (b - 0.5) for a, b in pairwise(values)) / len(values)
        assert abs(covariance) < 4 / 12 / len(values) ** 0.5


def test_a_key_depends_on_every_part_of_the_name() -> None:
    names = [
        (seed, path, call, sample)
        for seed in (0, 1, -1, 2**64 - 1, -(2**63))
        for path in ("", "0", "1", "0.1", "01")
        for call in (0, 1, 11)
        for sample in (0, 1, 11)
    ]
    keys = {stream_key(*name) for name in names}
    assert len(keys) == len(names)
    assert all(0 <= key < 2**64 for key in keys)


def test_a_key_never_changes_between_versions() -> None:
    assert stream_key(11, "0.3", 2, 1) == 0x499D6588A7AFF38D
    assert uniform(stream_key(11, "0.3", 2, 1), 5) == float.fromhex("0x1.915512fcda910p-1")
