import random

import pytest

from ramet.runtime.cache.absence import Absences, Away


def test_an_unknown_site_is_expected_to_stay_away_as_long_again() -> None:
    absences = Absences()
    assert absences.expected(Away("a:1", 10.0), 13.0) == 3.0


def test_what_is_left_is_the_mean_of_what_was_longer() -> None:
    absences = Absences()
    for seconds in (1.0, 2.0, 9.0):
        absences.record("a:1", seconds)
    away = Away("a:1", 100.0)
    assert absences.expected(away, 100.0) == pytest.approx(4.0)
    assert absences.expected(away, 101.5) == pytest.approx((0.5 + 7.5) / 2)
    assert absences.expected(away, 105.0) == pytest.approx(4.0)
    assert absences.expected(away, 120.0) == 20.0, "longer than any: as long again"
    assert absences.expected(Away("b:1", 100.0), 101.0) == 1.0, "sites are apart"


def test_only_the_latest_absences_count() -> None:
    absences = Absences()
    for _ in range(100):
        absences.record("a:1", 50.0)
    for _ in range(64):
        absences.record("a:1", 2.0)
    assert absences.expected(Away("a:1", 0.0), 0.0) == pytest.approx(2.0)


def test_the_oldest_sites_are_forgotten() -> None:
    absences = Absences()
    for number in range(5000):
        absences.record(f"a:{number}", 7.0)
    assert absences.expected(Away("a:0", 0.0), 1.0) == 1.0
    assert absences.expected(Away("a:4999", 0.0), 1.0) == 6.0


def test_it_agrees_with_the_definition() -> None:
    rng = random.Random(1)
    absences, kept = Absences(), []
    for _ in range(300):
        seconds = rng.choice([0.5, 1.0, rng.expovariate(0.2)])
        absences.record("s", seconds)
        kept = [*kept, seconds][-64:]
        gone = rng.uniform(0.0, 12.0)
        longer = [s - gone for s in kept if s > gone]
        expected = sum(longer) / len(longer) if longer else gone
        assert absences.expected(Away("s", 0.0), gone) == pytest.approx(expected)
