from __future__ import annotations

from ramet.runtime.metrics import Report

STATS = {
    "calls": 12,
    "computed_tokens": 1234,
    "cached_tokens": 750,
    "generated_tokens": 192,
    "hit_rate": 0.75,
    "optimum_hit_rate": 0.8,
    "hit_ratio": 0.9375,
    "logged_calls": 12,
    "optimum_tokens": 1200,
    "recomputed_tokens": 0,
    "retractions": 0,
    "steps": 9,
}


def test_the_report_has_the_totals_the_rates_and_their_ratio() -> None:
    report = Report.of(STATS, 3.42)
    assert str(report) == (
        "12 calls in 3.4 s: 1,234 tokens computed (1,200 needed), 750 cached, 192 generated; "
        "hit rate 75.0% of 80.0% possible (93.8% of the optimum)"
    )


def test_it_says_what_was_computed_again_and_who_gave_way() -> None:
    text = str(Report.of({**STATS, "recomputed_tokens": 34, "retractions": 3}, 1.0))
    assert "1,234 tokens computed (1,200 needed, 34 of them again)" in text
    assert "192 generated, 3 retractions; hit rate" in text


def test_without_a_call_there_are_no_rates() -> None:
    assert str(Report.of(dict.fromkeys(STATS, 0), 1.0)) == "0 calls in 1.0 s: 0 tokens computed"


def test_it_says_when_the_trace_is_not_whole() -> None:
    text = str(Report.of({**STATS, "logged_calls": 7}, 1.0))
    assert "optimum, first 7 calls)" in text
    assert "needed" not in text


def test_one_call_and_none() -> None:
    idle = Report.of(dict.fromkeys(STATS, 0), 0.0)
    assert (idle.hit_rate, idle.best_hit_rate) == (0.0, 0.0)
    assert str(Report.of({**STATS, "calls": 1, "logged_calls": 1}, 1.0)).startswith("1 call in")
