from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_chains_differ_share_their_prefix_and_repeat_with_a_seed(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("self_consistency")
    state = program.solve.run(question="How many?", chains=4, seed=3)
    again = program.solve.run(question="How many?", chains=4, seed=3)
    other = program.solve.run(question="How many?", chains=4, seed=4)
    assert len(set(state["reasoning"])) == 4
    assert state["reasoning"] == again["reasoning"] != other["reasoning"]
    assert tiny.stats()["calls"] == 3 * 8
    prompt = len(program.EXAMPLES)
    assert tiny.stats()["cached_tokens"] >= 11 * prompt
    program.main(["--chains", "2", "--question", "How many?"])
    out = capsys.readouterr().out
    assert "  2. " in out
    assert "Answer: " in out


def test_the_first_number_of_each_answer_votes(load: Load, tiny: rm.Runtime) -> None:
    program = load("self_consistency")
    state = program.solve.run(question="How many?", chains=8, seed=0)
    numbers = [re.search(r"-?\d+", answer) for answer in state["answer"]]
    assert state["votes"] == Counter(n.group() for n in numbers if n)
