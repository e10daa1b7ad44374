from ramet.runtime.counters import OTHER, Counters


def test_pairs_of_names_are_told_apart_up_to_the_limit():
    counters = Counters(max_accounts=2)
    for site, program in (("a:1", "p"), ("b:2", "p"), ("c:3", "p"), ("d:4", "q"), ("a:1", "p")):
        counters.account(site, program).calls += 1
    found = counters.to_dict()
    assert found["calls"] == 5
    assert {k: v["calls"] for k, v in found["call_sites"].items()} == {"a:1": 2, "b:2": 1, OTHER: 2}
    assert {k: v["calls"] for k, v in found["programs"].items()} == {"p": 3, OTHER: 2}
    assert counters.account("a:1", "p") is counters.account("a:1", "p")


def test_a_call_is_counted_in_total_and_under_both_its_names():
    counters = Counters()
    for site, program in (("a:1", "p"), ("b:2", "p"), ("a:1", "q")):
        counters.account(site, program).prompt_tokens += 5
    found = counters.to_dict()
    assert found["prompt_tokens"] == 15
    assert {k: v["prompt_tokens"] for k, v in found["call_sites"].items()} == {"a:1": 10, "b:2": 5}
    assert {k: v["prompt_tokens"] for k, v in found["programs"].items()} == {"p": 10, "q": 5}
    assert set(found["programs"]["p"]) == {
        "calls",
        "prompt_tokens",
        "cached_tokens",
        "computed_tokens",
        "generated_tokens",
        "queue_seconds",
        "run_seconds",
    }
