import random

from ramet.runtime.schedule.optimum import LoggedCall, optimum
from ramet.runtime.schedule.trace_log import IN_FLIGHT, TraceLog


def begin(log: TraceLog, prompt: list[int], charged: int = 0) -> LoggedCall | None:
    return log.begin(0, prompt, prompt_tokens=len(prompt), charged_tokens=charged)


def test_the_report_has_what_was_achieved_beside_the_best() -> None:
    log = TraceLog()
    for charged in (4, 1, 3):
        logged = begin(log, [1, 2, 3, 9], charged)
        assert logged is not None
        log.end(logged)
    report = log.report()
    assert report["hit_rate"] == 1 - 8 / 12
    assert report["optimum_hit_rate"] == 1 - 4 / 12
    assert report["hit_ratio"] == report["hit_rate"] / report["optimum_hit_rate"]
    assert (report["optimum_tokens"], report["logged_calls"]) == (4, 3)
    assert report["trace_complete"] is True


def test_nothing_to_share_is_reached_fully() -> None:
    log = TraceLog()
    assert log.report()["hit_ratio"] == 1.0
    begin(log, [1, 2], 2)
    assert (log.report()["hit_rate"], log.report()["hit_ratio"]) == (0.0, 1.0)


def test_folding_early_and_often_changes_nothing() -> None:
    rng = random.Random(3)
    log, calls = TraceLog(), []
    for number in range(200):
        logged = begin(log, rng.choices(range(2), k=rng.randint(1, 12)))
        assert logged is not None
        calls.append(logged)
        if number % 3 == 0:
            log.report()
        log.end(logged, [rng.choices(range(2), k=rng.randint(0, 4)) for _ in range(2)])
    best = optimum(calls)
    report = log.report()
    assert report["optimum_tokens"] == best.computed_tokens
    assert report["optimum_hit_rate"] == best.hit_rate


def test_much_is_folded_without_being_asked() -> None:
    log = TraceLog()
    for start in range(3):
        logged = begin(log, list(range(start, start + 50_000)))
        assert logged is not None
        log.end(logged, [[1, 2]])
    assert not log._begun
    assert not log._ended


def test_a_full_log_stops_and_says_so() -> None:
    log = TraceLog(max_tokens=10)
    assert begin(log, [1, 2, 3, 4], 4) is not None
    for _ in range(2 * IN_FLIGHT + IN_FLIGHT // 2 - 1):
        assert begin(log, [1, 2, 3, 4]) is not None
    assert begin(log, [1, 2, 3, 4]) is None  # More tokens of calls in flight than are kept.
    report = log.report()
    assert report["trace_complete"] is False
    assert (report["logged_calls"], report["hit_ratio"]) == (20, 1.0)


def test_distinct_tokens_are_bounded_too() -> None:
    log = TraceLog(max_tokens=10)
    for start in range(4):
        logged = begin(log, [start * 100 + i for i in range(6)])
        if logged is not None:
            log.end(logged)
        log.report()
    assert log.report()["logged_calls"] == 2


def test_a_namespace_that_is_over_leaves_its_figures_only() -> None:
    log = TraceLog(max_tokens=10)
    for number in range(20):
        calls = [log.begin(number, [1, 2, 3], prompt_tokens=3, charged_tokens=c) for c in (3, 0)]
        for logged in calls:
            assert logged is not None, number
            log.end(logged, [[7, 8]])
        log.forget(number)
    report = log.report()
    assert (report["logged_calls"], report["trace_complete"]) == (40, True)
    assert (report["hit_rate"], report["optimum_hit_rate"]) == (0.5, 0.5)
    assert report["optimum_tokens"] == 20 * 5
    assert log._tree.num_tokens == 0
