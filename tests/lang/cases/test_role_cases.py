"""Reported cases of roles and chat templates: B21, B22 and B24."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chat_templates import GEMMA, LLAMA_2, LLAMA_3, MISTRAL
from scripted_runtime import SPECIALS, words, writes

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

Start = Callable[..., Runtime]
HEADERS = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


def test_a_template_that_refuses_a_role_says_so_and_the_runtime_lives(
    start: Start, tmp_path: Path
) -> None:
    """B21 (frontend): a template's refusal of a system message was an internal error."""
    runtime = start(writes({}, ["y"]), words(tmp_path, template=GEMMA))

    @rm.function
    def program(s: rm.ProgramState, system: bool) -> None:
        if system:
            s += rm.system("Be brief.")
        s += rm.user("Hi") + rm.assistant(rm.gen("a", max_tokens=1))

    with pytest.raises(rm.ProgramError, match="System role not supported"):
        program.run(system=True, backend=runtime)
    assert program.run(system=False, backend=runtime, temperature=0)["a"] == "y"


@pytest.mark.parametrize("template", [None, GEMMA, LLAMA_3])
def test_an_assistants_message_alone_can_be_continued(
    start: Start, tmp_path: Path, template: str | None
) -> None:
    """B22 (frontend): a conversation of only an assistant's message broke the rendering."""
    settings = {} if template is None else {"template": template}
    runtime = start(writes({"Hello": ["!"]}), words(tmp_path, bos=template is not None, **settings))

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.assistant("Hello" + rm.gen("a", max_tokens=1))

    state = program.run(backend=runtime, temperature=0)
    assert state.messages() == [{"role": "assistant", "content": "Hello!"}]
    assert state["a"] == "!"
    assert "Hello!" in state.text()


@pytest.mark.parametrize("template", [LLAMA_2, MISTRAL])
def test_an_assistants_message_alone_is_refused_in_the_templates_words(
    start: Start, tmp_path: Path, template: str
) -> None:
    """B22 (frontend): else the error is the template's own, and the runtime lives."""
    runtime = start(writes({}, ["y"]), words(tmp_path, bos=True, template=template))

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.assistant("Hello" + rm.gen("a", max_tokens=1))

    with pytest.raises(rm.ProgramError, match="must alternate"):
        program.run(backend=runtime)


@pytest.mark.parametrize("template", [LLAMA_3, MISTRAL, GEMMA])
def test_exactly_one_bos_stands_at_the_start(start: Start, tmp_path: Path, template: str) -> None:
    """B24: a template's BOS and the tokenizer's own came both."""
    runtime = start(writes({}, ["y"]), words(tmp_path, HEADERS, bos=True, template=template))
    bos = runtime.tokenizer.bos_id
    states: list[rm.ProgramState] = []

    @rm.function
    def chat(s: rm.ProgramState) -> None:
        s += rm.user("Hi") + rm.assistant(rm.gen("a", max_tokens=1))
        children = s.fork(2)
        children += rm.user("And?") + rm.assistant(rm.gen("a", max_tokens=1))
        states.extend(children)
        s += rm.user("More") + rm.assistant(rm.gen("a", max_tokens=1))
        states.append(s)

    @rm.function
    def plain(s: rm.ProgramState, prompt: str) -> None:
        s += prompt + rm.gen("a", max_tokens=1)
        states.append(s)

    chat.run(backend=runtime)
    for prompt in ("Hi", "<s>Hi", "<s>", ""):
        plain.run(prompt=prompt, backend=runtime)
    assert len(states) == 7
    for state in states:
        ids = state.meta("a")["prompt_token_ids"]
        assert ids[0] == bos
        assert ids.count(bos) == 1


def test_a_forked_empty_state_has_one_bos(start: Start, tmp_path: Path) -> None:
    """B24: fork children of an empty state, with and without roles."""
    runtime = start(writes({}, ["y"]), words(tmp_path, bos=True, template=GEMMA))
    bos = runtime.tokenizer.bos_id
    children: list[rm.ProgramState] = []

    @rm.function
    def program(s: rm.ProgramState) -> None:
        group = s.fork(2)
        group[0].user("Hi")
        group[0] += rm.assistant(rm.gen("a", max_tokens=1))
        group[1] += "<s>Hi" + rm.gen("a", max_tokens=1)
        children.extend(group)

    program.run(backend=runtime)
    for child in children:
        ids = child.meta("a")["prompt_token_ids"]
        assert (ids[0], ids.count(bos)) == (bos, 1)


def test_a_tokenizer_without_bos_works(start: Start, tmp_path: Path) -> None:
    """B24: a BOS id of None."""
    runtime = start(writes({}, ["y"]), words(tmp_path))
    assert runtime.tokenizer.bos_id is None

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.user("Hi") + rm.assistant(rm.gen("a", max_tokens=1))
        s += "more" + rm.gen("b", max_tokens=1)

    state = program.run(backend=runtime, temperature=0)
    assert (state["a"], state["b"]) == ("y", "y")
    assert state.meta("a")["prompt_token_ids"][0] == runtime.tokenizer.special_id(SPECIALS[2])
