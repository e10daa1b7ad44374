from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_levels_are_ranked_and_only_the_kept_are_expanded(load: Load, tiny: rm.Runtime) -> None:
    program = load("tree_of_thought")
    options = {"start": "A dog.", "mood": "sad", "depth": 3, "proposals": 3, "keep": 2}
    levels = program.write.run(**options, seed=1)["levels"]
    assert [len(level) for level in levels] == [3, 6, 6]
    for depth, level in enumerate(levels, 1):
        values = [value for value, _ in level]
        assert values == sorted(values, reverse=True)
        assert all(0 <= value <= 1 for value in values)
        assert {len(path) for _, path in level} == {depth}
    for above, below in itertools.pairwise(levels):
        kept = [path for _, path in above[:2]]
        assert {kept.index(path[:-1]) for _, path in below} == {0, 1}
    stats = tiny.stats()
    assert stats["calls"] == 2 * (3 + 6 + 6)
    assert stats["cached_tokens"] >= 29 * len(program.STORIES)

    assert program.write.run(**options, seed=1)["levels"] == levels
    assert program.write.run(**options, seed=2)["levels"] != levels


def test_moods_are_opposite(load: Load, tiny: rm.Runtime) -> None:
    program = load("tree_of_thought")
    options = {"start": "A dog.", "depth": 1, "proposals": 3, "keep": 1, "seed": 5}
    happy, sad = (
        {path[0]: value for value, path in program.write.run(mood=mood, **options)["levels"][0]}
        for mood in program.MOODS
    )
    assert happy.keys() == sad.keys()
    assert all(happy[text] + sad[text] == pytest.approx(1) for text in happy)


def test_the_tree_and_the_story_are_printed(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    load("tree_of_thought").main(["--depth", "2", "--proposals", "2", "--keep", "1"])
    out = capsys.readouterr().out
    assert len(re.findall(r"^ +\d+%  kept  ", out, re.MULTILINE)) == 2
    assert len(re.findall(r"^ +\d+%        ", out, re.MULTILINE)) == 2
    assert "\n\nA small dog sat alone at the railway station. " in out


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("tree_of_thought").main(["--help"])
    assert end.value.code == 0
    assert "--mood" in capsys.readouterr().out
