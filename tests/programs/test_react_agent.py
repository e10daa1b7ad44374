from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("345 + 678", "1023"),
        (" 2 * (3 - 5) ", "-4"),
        ("7 / 2", "3.5"),
        ("-3 + 1", "-2"),
        ("0.1 + 0.2", "0.3"),
    ],
)
def test_the_calculator_calculates(load: Load, text: str, result: str) -> None:
    assert load("react_agent").calculate(text) == result


@pytest.mark.parametrize(
    "text",
    [
        *("", "1 /0", "9 ** 9 ** 9", "__import__('os')", "print(1)", "x", "1 +", "(1).real"),
        *("[1]", "1j", "(" * 300, "'a' * 9", "True if 1 else 2", "1, 2", "\0", "9" * 5000),
    ],
)
def test_the_calculator_refuses_everything_else(load: Load, text: str) -> None:
    assert load("react_agent").calculate(text) == "This cannot be calculated."


def test_the_knowledge_base(load: Load) -> None:
    program = load("react_agent")
    assert program.look_up(" Ant ").startswith("The ant has 6 legs.")
    assert program.look_up("unicorn") == "Nothing is known about the unicorn."


def test_rounds_are_bounded_and_tools_are_used(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("react_agent")
    program.main(["--question", "One?", "--question", "Two?", "--rounds", "3"])
    out = capsys.readouterr().out
    runs = re.findall(r"Question: (One|Two)\?\n(.*?)=> (.*?)\n\n", out, re.DOTALL)
    assert [question for question, _, _ in runs] == ["One", "Two"]
    for _, text, result in runs:
        tools = re.findall(r"\nAction: (Calculate|Lookup|Finish)\[", text)
        assert 1 <= len(tools) <= 3
        assert "Finish" not in tools[:-1]
        assert text.count("\nObservation: ") == len([tool for tool in tools if tool != "Finish"])
        assert (tools[-1] == "Finish") or result == "gave up"
    assert tiny.stats()["calls"] == 3 * out.count("\nAction: ")


def test_it_ends_on_finish(load: Load, tiny: rm.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the other two tools to choose from.
    select = rm.select
    monkeypatch.setattr(rm, "select", lambda name, choices: select(name, choices[-1:]))
    state = load("react_agent").agent.run(question="One?", max_rounds=4, temperature=0)
    assert state["result"] == state["input"]
    assert len(state.history("thought")) == 1
    assert state.text().endswith(f" Finish[{state['input']}]\n")


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("react_agent").main(["--help"])
    assert end.value.code == 0
    assert "--rounds" in capsys.readouterr().out
