from __future__ import annotations

from typing import Any

from ramet.lang.explain import CallRecord, explain

TEXTS = {7: " Rome", 8: " Paris", 9: '"'}


def record(branch: str = "", **meta: Any) -> CallRecord:
    whole = {
        "call_site": "/home/me/qa.py:12",
        "program_id": 5,
        "prompt_tokens": 1200,
        "completion_tokens": 3,
        "finish_reason": "stop",
        "queue_s": 0.0012,
        "run_s": 2.5,
        "prefix": {"cached": 1200, "charged": 0, "from": [], "miss": None},
        **meta,
    }
    return CallRecord("answer", "gen", branch, whole, lambda token: TEXTS[token])


def prefix(charged: int, miss: dict[str, Any] | None, *origins: dict[str, Any]) -> dict[str, Any]:
    return {"cached": 1200 - charged, "charged": charged, "from": list(origins), "miss": miss}


def origin(tokens: int, program_id: int | None = 5, branch: str = "") -> dict[str, Any]:
    if program_id is None:
        names = dict.fromkeys(("call_site", "program", "program_id", "branch"))
    else:
        names = {"call_site": "x/qa.py:9", "program": "qa", "program_id": program_id}  # type: ignore[dict-item]
        names["branch"] = branch
    return {"tokens": tokens, **names}


def test_each_call_is_a_paragraph_in_order() -> None:
    report = explain([record(), record("0.1")])
    first, second = report.split("\n\n")
    assert first == (
        '1. gen "answer" at qa.py:12, main branch\n'
        "  prompt: 1,200 tokens, 1,200 cached, 0 computed for it\n"
        "  generated 3 tokens (ended by stop); waited 1.2 ms, ran 2.50 s"
    )
    assert second.startswith('2. gen "answer" at qa.py:12, branch 0.1\n')
    assert explain([]) == "no calls"


def test_cached_tokens_have_their_origins() -> None:
    found = prefix(0, None, origin(1000, 3, "0"), origin(100, 5), origin(60, 5, "0.1"))
    found["from"].append(origin(40, None))
    lines = explain([record("0.1", prefix=found)]).splitlines()
    assert lines[2:6] == [
        "  cached: 1,000 tokens from qa.py:9, in qa #3, branch 0",
        "  cached: 100 tokens from qa.py:9, main branch",
        "  cached: 60 tokens from qa.py:9, here",
        "  cached: 40 tokens from others",
    ]


def test_a_miss_shows_the_token_beside_the_nearest() -> None:
    miss = {"position": 1180, "token": 7, "nearest": [8, 9]}
    report = explain([record(prefix=prefix(20, miss))])
    assert "1,180 cached, 20 computed for it" in report
    assert (
        'missed from token 1,180 on, " Rome", where the nearest cached path continues with '
        '" Paris" or "\\""'
    ) in report


def test_a_miss_without_a_neighbour() -> None:
    for position, words in (
        (5, "no cached path went further"),
        (0, "no cached path that it may share began like"),
    ):
        miss = {"position": position, "token": 7, "nearest": []}
        assert words in explain([record(prefix=prefix(1, miss))])


def test_what_evicted_it() -> None:
    by = {key: value for key, value in origin(0, 4).items() if key != "tokens"}
    miss: dict[str, Any] = {"position": 5, "token": 7, "evicted_by": by}
    report = explain([record(prefix=prefix(9, miss))])
    assert '" Rome": evicted for qa.py:9, in qa #4, main branch' in report
    forgotten = explain([record(prefix=prefix(9, {**miss, "evicted_by": None}))])
    assert '" Rome": evicted\n' in forgotten


def test_a_selection_says_what_it_chose() -> None:
    report = explain([record(index=1, choices=[{}, {}, {}])])
    assert "chose number 2 of 3; waited" in report


def test_a_backend_that_says_little_is_said_to() -> None:
    meta = {"prompt_tokens": 9, "cached_tokens": None, "completion_tokens": 2}
    call = CallRecord(None, "gen", "", meta, str, site="a/b.py:3")
    assert explain([call]) == (
        "1. gen at b.py:3, main branch\n"
        "  prompt: 9 tokens, an unknown number cached, an unknown number computed for it\n"
        "  where cached tokens came from and what was missed: the backend doesn't say\n"
        "  generated 2 tokens; time: the backend doesn't say"
    )
    report = explain([CallRecord(None, "gen", "", {}, str)])
    assert "an unknown place" in report
    assert "prompt: an unknown number of tokens" in report


def test_a_failed_call_says_why() -> None:
    call = CallRecord("x", "select", "", None, str, "b.py:3", ValueError("no"))
    assert explain([call]) == '1. select "x" at b.py:3, main branch\n  failed: ValueError: no'
    assert "still running" in explain([CallRecord("x", "gen", "", None, str)])
