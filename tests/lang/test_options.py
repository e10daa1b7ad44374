from __future__ import annotations

import inspect
from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang.arguments import Arguments
from ramet.lang.options import RunOptions, batch_options, split


def arguments(body: Any) -> Arguments:
    return Arguments("prog", inspect.signature(body))


def test_keywords_are_the_bodys_the_runs_or_refused() -> None:
    found = arguments(lambda s, topic, n, seed: None)
    own, options = split(
        found, {"topic": "t", "n": 3, "seed": 4, "timeout": 1.5, "max_tokens": 5, "stop": "x"}
    )
    assert own == {"topic": "t", "n": 3, "seed": 4}
    assert options.timeout == 1.5
    assert options.seed is None
    assert options.sampling == {"max_new_tokens": 5, "stop": "x"}
    with pytest.raises(rm.InvalidArgument, match="'typo'; there are: topic, n, seed, backend"):
        split(found, {"typo": 1})
    own, options = split(arguments(lambda s, **more: None), {"any": 1, "top_k": 2})
    assert own == {"any": 1}
    assert options.sampling == {"top_k": 2}


def test_no_options_are_one_object() -> None:
    first = split(arguments(lambda s, a: None), {"a": 1})[1]
    assert first is split(arguments(lambda s: None), {})[1]
    assert first == RunOptions()


@pytest.mark.parametrize(
    "option",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": True},
        {"timeout": "1"},
        {"stream": 1},
        {"seed": "a"},
        {"seed": 1.5},
        {"temperature": -1},
        {"max_tokens": 0.5},
        {"max_tokens": 1, "max_new_tokens": 2},
    ],
)
def test_bad_options_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(rm.InvalidArgument, match=next(iter(option)).removeprefix("max_")):
        split(arguments(lambda s: None), option)


def test_options_of_a_batch() -> None:
    found = arguments(lambda s, topic: None)
    options = batch_options(found, "backend", 2, {"temperature": 0})
    assert (options.backend, options.timeout, options.stream) == ("backend", 2, False)
    assert options.sampling == {"temperature": 0}
    for name in ("topic", "stream", "typo"):
        with pytest.raises(rm.InvalidArgument, match=f"'{name}'"):
            batch_options(found, None, None, {name: 1})
