from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from fake_backend import FakeBackend
from tag_oracle import front_end, matcher, takes

import ramet.lang as rm
from ramet.runtime.grammar import front_ends
from ramet.runtime.grammar.structural_tags import tags_source

Load = Callable[[str], ModuleType]


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Contents of structural tags are read by the mask engine's own front ends."""
    tags: Callable[..., Any] = tags_source

    def source(kind: str, text: str, strict: bool, whitespace: str) -> Any:
        if kind == "structural_tags":
            return tags(text, strict=strict, whitespace=whitespace, compile_part=front_end)
        return front_end(kind, text, strict, whitespace)

    def forget() -> None:
        front_ends.tag_reader.cache_clear()
        front_ends.source_of.cache_clear()

    forget()
    monkeypatch.setattr(front_ends, "_source", source)
    yield
    forget()


def test_the_tools_calculate_and_look_up(load: Load) -> None:
    program = load("tool_agent")
    assert program.Calculate(left=345, operator="+", right=678).run() == "1023"
    assert program.Calculate(left=1, operator="-", right=1.5).run() == "-0.5"
    assert program.LookUp(animal="ant").run().startswith("The ant has 6 legs.")


def test_the_examples_are_lines_that_the_tags_allow(load: Load) -> None:
    program = load("tool_agent")
    lines = program.EXAMPLES.split("\n")
    calls = [line.split(" -> ")[0] for line in lines if "<tool=" in line]
    free = [line for line in lines if "<tool=" not in line]
    assert len(calls) >= 2
    node: Any = rm.gen("line", structural_tags={"format": program.LINE})
    made = matcher(front_ends.source_of(node.params.constraint).lark)
    for line in (*calls, *free):
        assert takes(made, line), line
    assert not takes(made, calls[0] + " and more")


def test_calls_are_run_until_a_line_has_none(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("tool_agent")
    call = '<tool=calculate>{"left":3,"operator":"*","right":4}</tool>'

    def script(prompt: str, *_: object) -> str:
        if prompt.endswith("Forever?\n") or "Forever?" in prompt.split("Question: ")[-1]:
            return '<tool=look_up>{"animal":"ant"}</tool>'
        if prompt.endswith("Cut?\n"):
            return '<tool=calculate>{"left":'
        return f"I calculate. {call}" if prompt.endswith("?\n") else " It is 12. "

    backend = FakeBackend(script=script)
    rm.set_default_backend(backend)
    try:
        arguments = [f"--question={question}" for question in ("How much?", "Forever?", "Cut?")]
        program.main(arguments)
    finally:
        rm.set_default_backend(None)
        backend.shutdown()
    first, second, third = capsys.readouterr().out.removesuffix("\n\n").split("\n\n")
    assert first == f"Question: How much?\nI calculate. {call} -> 12\n It is 12. => It is 12."
    assert second.count("</tool> -> The ant has 6 legs.") == 4
    assert second.endswith("\n=> gave up")
    assert third.startswith("=> gave up: '<tool=calculate>")


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("tool_agent").main(["--help"])
    assert end.value.code == 0
    assert "--question" in capsys.readouterr().out
