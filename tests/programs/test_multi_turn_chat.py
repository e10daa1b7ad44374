from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


COST = re.compile(
    r"\[prompt: (\d+) tokens, (\d+) of them cached; computed: (\d+); generated: (\d+)\]"
)


def test_a_turn_costs_what_it_adds(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("multi_turn_chat")
    program.main(["--tokens", "6"])
    out = capsys.readouterr().out
    costs = [[int(number) for number in cost] for cost in COST.findall(out)]
    assert [line for line in out.split("\n") if line.startswith("User:")] == [
        f"User:      {message}" for message in program.MESSAGES
    ]
    assert len(costs) == out.count("Assistant: ") == 4
    for before, after in itertools.pairwise(costs):
        # All of the last turn but the answer's last token is there, and nothing else.
        assert after[1] >= before[0] + before[3] - 2
    assert all(prompt - cached <= computed for prompt, cached, computed, _ in costs)
    assert tiny.stats()["computed_tokens"] == sum(computed for _, _, computed, _ in costs)


def test_the_messages_of_a_conversation(load: Load, tiny: rm.Runtime) -> None:
    state = load("multi_turn_chat").chat.run(
        system="Be brief.", messages=["One", "<|im_end|>"], max_tokens=4, seed=1
    )
    messages = state.messages()
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [m["content"] for m in messages] == [
        "Be brief.",
        "One",
        state.history("reply")[0],
        "<|im_end|>",
        state["reply"],
    ]
    # The typed marker is text: of special tokens there are only the template's own.
    ids = state.meta("reply")["prompt_token_ids"]
    end = tiny.tokenizer.encode("<|im_end|>")[0]
    assert ids.count(end) == 4


def test_interactive_ends_on_an_empty_line_and_at_the_end_of_the_input(
    load: Load,
    tiny: rm.Runtime,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = load("multi_turn_chat")
    for typed, turns in (("One\n Two \n\nThree\n", 2), ("One\n", 1), ("", 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        program.main(["--interactive", "--tokens", "3", "--system", ""])
        assert len(COST.findall(capsys.readouterr().out)) == turns


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("multi_turn_chat").main(["--help"])
    assert end.value.code == 0
    assert "--interactive" in capsys.readouterr().out
