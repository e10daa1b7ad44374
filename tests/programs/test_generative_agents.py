from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_everybody_acts_each_hour_in_a_shared_world(load: Load, tiny: rm.Runtime) -> None:
    program = load("generative_agents")
    story, states = asyncio.run(program.day(2, 0.8, 3))
    lines = story.splitlines()
    hours = [index for index, line in enumerate(lines) if re.fullmatch(r"[89]:00", line)]
    assert len(hours) == 2
    assert [state.ret_value[0].split(".")[0][:3] for state in states] == ["Ada", "Ben", "Cle"] * 2
    for state in states:
        name = state.ret_value[0][:3]
        assert state["other"].strip()[:3] in {"Ada", "Ben", "Cle"} - {name}
        assert state.ret_value[1] in story
    assert tiny.stats()["calls"] == 3 * len(states)
    # The first one of an hour computes what is new, the others find it.
    for hour in (states[:3], states[3:]):
        later = [state.meta("deed") for state in hour[1:]]
        assert all(meta["computed_tokens"] < 40 for meta in later)
    assert asyncio.run(program.day(2, 0.8, 3))[0] == story


def test_the_story_is_printed(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    load("generative_agents").main(["--hours", "1"])
    assert capsys.readouterr().out.startswith("8:00\nAda")


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("generative_agents").main(["--help"])
    assert end.value.code == 0
    assert "--hours" in capsys.readouterr().out
