import random

import pytest

from ramet.runtime.schedule.optimum import LoggedCall, Optimum, as_ids, optimum


def call(
    prompt: list[int],
    decoded: tuple[list[int], ...] = (),
    *,
    tails: tuple[list[int], ...] = (),
    namespace: int = 0,
) -> LoggedCall:
    count = sum(len(prompt) + len(t) for t in tails) if tails else len(prompt)
    ids = [as_ids(t) for t in tails]
    return LoggedCall(namespace, as_ids(prompt), ids, count, 0, [as_ids(d) for d in decoded])


def by_sets(calls: list[LoggedCall]) -> Optimum:
    """The same from the definition: sets of all prefixes."""

    def prefixes(namespace: int, ids: list[int], start: int = 0) -> set:
        return {(namespace, tuple(ids[: end + 1])) for end in range(start, len(ids))}

    prompts: set = set()
    decodes: set = set()
    for c in calls:
        base = list(c.prompt)
        prompts |= prefixes(c.namespace, base)
        for tail in c.tails:
            prompts |= prefixes(c.namespace, base + list(tail), len(base))
        for ids in c.decoded:
            decodes |= prefixes(c.namespace, base + list(ids), len(base))
    total = sum(c.prompt_tokens for c in calls)
    return Optimum(len(calls), total, len(prompts - decodes), len(prompts | decodes))


def random_calls(rng: random.Random) -> list[LoggedCall]:
    """Calls over few tokens, which often go on from each other's paths."""
    paths: list[list[int]] = [[]]
    calls = []
    for _ in range(rng.randint(1, 30)):
        prompt = [*rng.choice(paths), *rng.choices(range(3), k=rng.randint(1, 6))]
        outputs = [rng.choices(range(3), k=rng.randint(0, 5)) for _ in range(rng.randint(0, 3))]
        tails = outputs if rng.random() < 0.3 else ()
        decoded = () if tails else outputs
        calls.append(
            call(prompt, tuple(decoded), tails=tuple(tails), namespace=rng.choice([0, 0, 0, 7]))
        )
        paths += [prompt, *(prompt + o for o in outputs)]
    return calls


@pytest.mark.parametrize("seed", range(300))
def test_it_is_what_sets_of_prefixes_say(seed: int) -> None:
    calls = random_calls(random.Random(seed))
    assert optimum(calls) == by_sets(calls)


def test_the_order_of_the_calls_does_not_matter() -> None:
    rng = random.Random(1)
    calls = [c for _ in range(10) for c in random_calls(rng)]
    expected = optimum(calls)
    rng.shuffle(calls)
    assert optimum(calls) == expected


def test_equal_prompts_cost_one_and_outputs_are_cache() -> None:
    first = call([1, 2, 3], ([4, 5],))
    again = call([1, 2, 3], ([4, 6],))
    later = call([1, 2, 3, 4, 5, 9])
    best = optimum([first, again, later])
    assert best == Optimum(3, 12, 3 + 1, 3 + 3 + 1)
    assert best.hit_rate == 1 - 4 / 12


def test_namespaces_share_nothing() -> None:
    assert optimum([call([1, 2]), call([1, 2], namespace=1)]).edge_tokens == 4


def test_no_calls_and_no_prompt() -> None:
    assert optimum([]) == Optimum()
    assert Optimum().hit_rate == 0.0
    assert Optimum(1, 4, 9, 9).hit_rate == 0.0  # Scored paths that no prompt counts.
