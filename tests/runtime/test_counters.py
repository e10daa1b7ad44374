from ramet.runtime.counters import OTHER, Counters, TallyTable


def test_a_table_tells_names_apart_up_to_its_limit():
    table = TallyTable(limit=2)
    for name in ("a", "b", "c", "d", "a"):
        table.of(name).calls += 1
    found = {name: tally["calls"] for name, tally in table.to_dict().items()}
    assert found == {"a": 2, "b": 1, OTHER: 2}
    assert table.of("a") is table.of("a")


def test_a_call_is_booked_in_total_and_on_both_its_names():
    counters = Counters()
    for site, program in (("a:1", "p"), ("b:2", "p"), ("a:1", "q")):
        for tally in counters.tallies(site, program):
            tally.prompt_tokens += 5
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
