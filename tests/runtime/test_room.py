"""What calls are booked on, what their meta says, and what a policy may know of programs."""

import random

import pytest
from checked_bench import checked_benches, score
from scripted_engine import Bench

from ramet.runtime.cache.audit import audit
from ramet.runtime.schedule.call import GenerateCall


@pytest.fixture
def make():
    yield from checked_benches()


def meta(bench: Bench, call: int) -> dict:
    return bench.done[call]["meta"]


def test_a_call_says_where_it_stands_and_where_its_prefix_came_from(make):
    bench = make()
    first = bench.open([1, 2, 3], name="qa")
    one = bench.generate(first, site="qa.py:1", max_tokens=3)
    bench.append(first, [9])
    two = bench.generate(first, site="qa.py:2", max_tokens=2)
    bench.run()
    wrote = bench.ids(one)
    second = bench.open([1, 2, 3, *wrote, 9, 7], name="other")
    three = bench.generate(second, site="other.py:5", max_tokens=1)
    bench.run()
    assert meta(bench, one)["call_site"] == "qa.py:1"
    assert meta(bench, one)["prefix"] == {
        "cached": 0,
        "charged": 3,
        "from": [],
        "miss": {"position": 0, "token": 1, "nearest": []},
    }
    names = {"program": "qa", "program_id": first, "branch": ""}
    assert meta(bench, two)["prefix"]["from"] == [{"tokens": 5, "call_site": "qa.py:1", **names}]
    found = meta(bench, three)
    assert found["prefix"]["from"] == [
        {"tokens": 5, "call_site": "qa.py:1", **names},
        {"tokens": 2, "call_site": "qa.py:2", **names},  # The last sampled token, and the literal.
    ]
    nearest = [bench.ids(two)[0]]
    assert found["prefix"]["miss"] == {"position": 7, "token": 7, "nearest": nearest}
    assert (found["cached_tokens"], found["computed_tokens"]) == (7, 1)
    assert found["program_id"] == second


def test_a_selection_reports_the_path_to_its_border(make):
    bench = make()
    context = bench.open([1, 2, 3], name="qa")
    one = score(bench, context, [[5, 6], [7, 8, 9]], site="a:1")
    bench.run()
    assert meta(bench, one)["prefix"]["charged"] == 3
    assert meta(bench, one)["computed_tokens"] == 3 + 3  # And 5, 7, 78 of the choices.
    again = bench.open([1, 2, 3])
    two = score(bench, again, [[5, 6], [4, 4]], site="a:2")
    bench.run()
    found = meta(bench, two)
    assert (found["prompt_tokens"], found["cached_tokens"], found["computed_tokens"]) == (3, 3, 1)
    assert found["prefix"]["miss"] is None
    assert [entry["call_site"] for entry in found["prefix"]["from"]] == ["a:1"]


def test_an_eviction_is_laid_at_the_door_of_who_needed_the_pages(make):
    bench = make(pool_tokens=64, page_size=4)
    old = bench.open([1] * 40, name="old")
    bench.generate(old, site="old:1", max_tokens=1)
    bench.run()
    big = bench.open([2] * 50, name="big")
    bench.generate(big, site="big:1", max_tokens=1)
    bench.run()
    call = bench.generate(bench.open([1] * 40, name="new"), site="new:1", max_tokens=1)
    bench.run()
    miss = meta(bench, call)["prefix"]["miss"]
    assert miss["evicted_by"] == {
        "call_site": "big:1",
        "program": "big",
        "program_id": big,
        "branch": "",
    }
    assert miss["position"] == meta(bench, call)["cached_tokens"] == 12


def test_call_sites_and_programs_have_their_own_counts(make):
    bench = make()
    for name in ("a", "b"):
        context = bench.open([1, 2, 3], name=name)
        bench.generate(context, site="x:1", max_tokens=4)
        bench.generate(context, site="x:2", max_tokens=2, n=2, temperature=1.0)
        bench.run()
    stats = bench.engine.stats()
    sites, programs = stats["call_sites"], stats["programs"]
    assert {site: tally["calls"] for site, tally in sites.items()} == {"x:1": 2, "x:2": 2}
    assert sites["x:1"]["prompt_tokens"] == 2 * 3
    assert sites["x:1"]["computed_tokens"] == 3 + 3
    assert sites["x:1"]["generated_tokens"] == 2 * 4
    assert sites["x:2"]["prompt_tokens"] == 2 * 2 * 7
    assert programs["a"]["computed_tokens"] > programs["b"]["computed_tokens"]
    assert all(tally["run_seconds"] > 0 for tally in sites.values())


def test_schedulers_see_forks_joins_and_what_is_to_come(make):
    bench = make()
    parent = bench.open([1, 2, 3], name="tree")
    children = bench.fork(parent, 3)
    calls = [bench.generate(child, site="t:1", max_tokens=4) for child in children]
    bench.generate(children[1], site="t:2", max_tokens=2)
    contexts = [bench.engine._contexts.live[child] for child in children]
    group = contexts[0].group
    assert group is not None
    places = [bench.engine._calls[call].place for call in calls]
    assert [place.remaining for place in places] == [0, 1, 0]
    assert all(place.group is group for place in places)
    assert [place.origin.branch for place in places] == ["0", "1", "2"]
    assert (group.unfinished, group.joined) == (3, False)
    busy = bench.generate(parent, site="t:3", max_tokens=2)
    bench.engine.submit([{"op": "join", "ctx": parent, "children": children}])
    after = bench.generate(parent, site="t:4", max_tokens=1)
    assert not group.joined, "the operations of a context run in order"
    while busy not in bench.done:
        bench.step()
    assert group.joined
    assert group.unfinished == 3
    bench.run()
    assert group.unfinished == 0
    assert after in bench.done
    bench.close(*children, parent)
    bench.engine.submit([{"op": "join", "ctx": parent, "children": children}])
    assert not bench.engine._contexts.live


def test_labels_of_a_compiled_graph_reach_the_sequences(make):
    bench = make()
    context = bench.open([1, 2, 3])
    op = {"op": "generate", "ctx": context, "params": {"max_new_tokens": 1}, "keys": [1]}
    bench.engine.submit([{**op, "call": 90, "depth": 2, "remaining": 5}])
    bench.engine.submit([{**op, "call": 91}])
    call = bench.engine._calls[90]
    assert isinstance(call, GenerateCall)
    (sequence,) = call.samples
    assert sequence.place is not None
    assert (sequence.place.depth, sequence.place.remaining) == (2, 5)
    bench.run()
    assert {90, 91} <= bench.done.keys()


class Witness:
    """All calls that start, with the paths that they asked for, to judge their reports by."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.calls: dict[int, tuple] = {}
        for starter in (bench.engine._generations, bench.engine._selections):
            self._wrap(starter)

    def _wrap(self, starter) -> None:
        start = starter.start

        def recorded(context, op):
            prompt = context.node.path_ids()
            call = start(context, op)
            program = context.program
            own = op.get("params", {})
            cache = own.get("cache", program.cache)
            space = own.get("cache_salt", program.salt)
            if not cache:
                space = ("program", program.id) if not program.cache else ("call", call.id)
            who = (op["site"], program.name, program.id, context.path)
            self.calls[call.id] = (len(self.calls), call, prompt, who, (space,))
            return call

        starter.start = recorded

    def paths(self, before: int, space: object, who: tuple | None = None) -> list[list[int]]:
        """What the calls up to `before` asked for in a namespace."""
        found = []
        for number, call, prompt, other, its_space in self.calls.values():
            if number > before or its_space != space or who not in (None, other):
                continue
            if isinstance(call, GenerateCall):
                found += [prompt + sequence.output_ids for sequence in call.samples]
            else:
                found += [prompt + choice["ids"] for choice in call.choices]
        return found

    def judge(self) -> None:
        for number, call, prompt, _, space in self.calls.values():
            prefix = call.prefix
            assert prefix["cached"] + prefix["charged"] == len(prompt)
            assert sum(entry["tokens"] for entry in prefix["from"]) == prefix["cached"]
            miss = prefix["miss"]
            assert (miss is None) == (prefix["charged"] == 0)
            contiguous = miss is None or miss["position"] == prefix["cached"]
            at = 0
            for entry in prefix["from"] if contiguous else []:
                at += entry["tokens"]
                who = tuple(entry[k] for k in ("call_site", "program", "program_id", "branch"))
                if who[0] is not None:
                    known = self.paths(number, space, who)
                    assert any(path[:at] == prompt[:at] for path in known), (call.id, entry)
            if miss is not None:
                self._judge_miss(number, prompt, space, miss)

    def _judge_miss(self, number, prompt, space, miss) -> None:
        at = miss["position"]
        assert prompt[at] == miss["token"]
        for token in miss.get("nearest", []):
            assert token != miss["token"]
            near = [*prompt[:at], token]
            assert any(path[: at + 1] == near for path in self.paths(number, space))
        if miss.get("evicted_by"):
            who = tuple(miss["evicted_by"].values())
            assert any(who == other for _, _, _, other, _ in self.calls.values())
        if "evicted_by" in miss:
            evicted = prompt[: at + 1]
            assert any(path[: at + 1] == evicted for path in self.paths(number, space))


def drive(bench: Bench, rng: random.Random) -> None:
    """A few hundred random operations of random programs, aborts included."""
    live: list[int] = []
    calls: list[int] = []
    for _ in range(250):
        action = rng.random()
        ids = [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
        if action < 0.15 or not live:
            options = {"salt": rng.choice([None, None, "s"]), "cache": rng.random() < 0.8}
            live.append(bench.open(ids, name=rng.choice("pq"), **options))
        elif action < 0.4:
            own = rng.choice([{}, {}, {}, {"cache": False}, {"cache_salt": "s"}, {"cache": True}])
            tokens, n = rng.randrange(1, 9), rng.randrange(1, 3)
            site = f"r:{rng.randrange(4)}"
            context = rng.choice(live)
            calls.append(bench.generate(context, site=site, max_tokens=tokens, n=n, **own))
        elif action < 0.5:
            texts = [[token, *ids] for token in range(rng.randrange(1, 4))]
            calls.append(score(bench, rng.choice(live), texts, site="r:select"))
        elif action < 0.6:
            parent = rng.choice(live)
            children = bench.fork(parent, 2)
            live += children
            bench.engine.submit([{"op": "join", "ctx": parent, "children": children}])
        elif action < 0.7:
            bench.append(rng.choice(live), ids)
        elif action < 0.74 and calls:
            bench.abort(call=rng.choice(calls))
        elif action < 0.78:
            bench.close(live.pop(rng.randrange(len(live))))
        else:
            bench.step()
            audit(bench.engine.room.tree)
            check_queues(bench)
    bench.run()
    bench.close(*live)
    bench.run()


def check_queues(bench: Bench) -> None:
    """What groups and contexts count is what is there."""
    contexts = bench.engine._contexts.live
    for context in contexts.values():
        kinds = [op["op"] for op in context.queue]
        assert context.queued_calls == kinds.count("generate") + kinds.count("score")
        if (group := context.group) is not None:
            branches = [contexts[c] for c in group.children if c in contexts]
            assert group.unfinished == sum(bool(b.queue) or not b.ready for b in branches)


@pytest.mark.parametrize("seed", range(8))
def test_reports_of_random_programs_are_true(make, seed: int):
    rng = random.Random(seed)
    pool = rng.choice([64, 96, 4096])
    bench = make(pool_tokens=pool, page_size=rng.choice([1, 4]), chunk_tokens=rng.choice([5, 64]))
    witness = Witness(bench)
    drive(bench, rng)
    assert not bench.engine._contexts.live
    assert not [node for node in bench.engine.room.tree.nodes() if node.refs]
    assert len(witness.calls) > 20
    assert bench.engine.stats()["calls"] == len(witness.calls)
    witness.judge()
