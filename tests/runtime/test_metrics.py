from __future__ import annotations

from ramet.runtime.metrics import Report

STATS = {
    "calls": 12,
    "computed_tokens": 1234,
    "cached_tokens": 750,
    "generated_tokens": 192,
    "prompt_tokens": 1000,
    "edge_tokens": 200,
    "steps": 9,
}


def test_the_report_has_the_totals_and_both_rates() -> None:
    report = Report.of(STATS, 3.42)
    assert str(report) == (
        "12 calls in 3.4 s: 1,234 tokens computed, 750 cached, 192 generated; "
        "hit rate 75.0% (best possible 80.0%)"
    )


def test_nothing_run_and_nothing_shared() -> None:
    idle = Report.of(dict.fromkeys(STATS, 0), 0.0)
    assert (idle.hit_rate, idle.best_hit_rate) == (0.0, 0.0)
    scored = Report.of({**STATS, "edge_tokens": 5000}, 1.0)  # Choices are edges but no prompt.
    assert scored.best_hit_rate == 0.0
    assert str(Report.of({**STATS, "calls": 1}, 1.0)).startswith("1 call in 1.0 s")
