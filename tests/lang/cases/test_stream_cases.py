"""Reported cases of streaming and stops: B26, B27, B28, B29, B31 and B33."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_runtime import sentencepiece, words, writes

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

Start = Callable[..., Runtime]


@pytest.fixture
def say(start: Start, tmp_path: Path) -> Callable[..., rm.ProgramState]:
    """Streams one gen of a model that writes the given tokens after "Go:"."""

    def run(tokens: Sequence[str], **options: Any) -> rm.ProgramState:
        own = sorted({token for token in tokens if len(token.encode()) > 1})
        folder = words(tmp_path / str(len(list(tmp_path.iterdir()))), own)
        runtime = start(writes({"Go:": tokens}), folder)

        @rm.function
        def program(s: rm.ProgramState) -> None:
            s += "Go:" + rm.gen("x", **options)

        return program.run(backend=runtime, stream=True, temperature=0)

    return run


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("prompt", ["Say", "Say: ", "Say:\n", "<s>Say"])
def test_a_stream_is_what_decoding_adds_to_the_prompt(
    start: Start, tmp_path: Path, bos: bool, prompt: str
) -> None:
    """B26: token by token, the space before a word was lost."""
    pieces = ["▁Hello", "▁world", ".", "▁It", "▁is", "▁"]
    spoken = [" Hello", " world", ".", " It", " is"]
    if not bos:
        prompt = prompt.removeprefix("<s>")
    runtime = start(writes({prompt: spoken}), sentencepiece(tmp_path, pieces, bos=bos))

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += prompt + rm.gen("x")

    state = program.run(backend=runtime, stream=True, temperature=0)
    joined = "".join(state.text_iter("x"))
    meta, decode = state.meta("x"), runtime.tokenizer.decode
    before = meta["prompt_token_ids"]
    whole = decode([*before, *meta["output_token_ids"]])
    assert joined == whole[len(decode(before)) :] == " Hello world. It is"
    assert state.text() == prompt + joined


@pytest.mark.parametrize(
    ("tokens", "value"),
    [
        (["xE", "ND!"], "x"),
        (["E", "N", "D"], ""),
        (["fooENDbar"], "foo"),
        (["x", "é", "E", "ND"], "xé"),
    ],
)
def test_a_stop_matches_across_token_borders(say: Any, tokens: list[str], value: str) -> None:
    """B27: a stop inside of a token, or spread over several, was missed or left in part."""
    state = say([*tokens, "tail"], stop="END")
    chunks = list(state.text_iter("x"))
    assert "".join(chunks) == state["x"] == value
    assert (state.meta("x")["finish_reason"], state.meta("x")["matched"]) == ("stop", "END")
    assert state.text() == f"Go:{value}"


def test_what_follows_a_cut_token_continues_the_kept_text(start: Start, tmp_path: Path) -> None:
    """B27: nothing behind the stop leaks into the next call's prompt."""
    runtime = start(
        writes({"Go:": ["fooENDbar"], "foo, then": ["!"]}), words(tmp_path, ["fooENDbar"])
    )

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Go:" + rm.gen("x", stop="END") + ", then" + rm.gen("y", max_tokens=1)

    state = program.run(backend=runtime, temperature=0)
    assert (state["x"], state["y"]) == ("foo", "!")
    assert runtime.tokenizer.decode(state.meta("y")["prompt_token_ids"]) == "Go:foo, then"


def test_no_part_of_a_stop_is_streamed(say: Any) -> None:
    """B28: the first piece of the stop reached the reader."""
    state = say(["Conc", "lusion", "!"], stop=["Conclusion"])
    assert list(state.text_iter("x")) == []
    assert state["x"] == ""
    state = say(["Conc", "rete", "."], stop=["Conclusion"])
    assert list(state.text_iter("x")) == ["Concrete", "."]


def test_text_that_begins_no_stop_is_sent_at_once(say: Any) -> None:
    """B29: any stop held back a fixed number of characters, and empty chunks came instead."""
    tokens = [" plain", " words", " here"]
    state = say(tokens, stop=["ZZZZZZZZ"])
    chunks = list(state.text_iter("x"))
    assert all(chunks)
    # A reader that comes late finds several tokens at once, but never part of one.
    assert "".join(chunks) == "".join(tokens)
    assert all(chunk.startswith(" ") for chunk in chunks)


@pytest.mark.parametrize(
    ("stop", "value", "matched"),
    [
        (["a"], "b c ", "a"),
        (["a", "b"], "", "b"),
        (["b", "a"], "", "b"),
        ([], "b c a END", None),
        ("END", "b c a ", "END"),
        (["END"], "b c a ", "END"),
        (["END", "END"], "b c a ", "END"),
        ([f"<{i}>" for i in range(100)], "b c a END", None),
        ([*(f"<{i}>" for i in range(99)), "END"], "b c a ", "END"),
    ],
)
def test_stop_lists_of_every_shape_work(
    say: Any, stop: Any, value: str, matched: str | None
) -> None:
    """B31: single letters crashed, and an empty text in the list moved the others."""
    state = say(["b", " ", "c", " ", "a", " ", "E", "N", "D"], stop=stop)
    assert "".join(state.text_iter("x")) == state["x"] == value
    if matched is None:
        assert state.meta("x")["finish_reason"] == "eos"
    else:
        assert (state.meta("x")["finish_reason"], state.meta("x")["matched"]) == ("stop", matched)


@pytest.mark.parametrize("stop", [["", "END"], "", [""]])
def test_an_empty_stop_is_refused(say: Any, stop: Any) -> None:
    """B31: an empty text among the stops is a mistake, never a stop at once or a hang."""
    with pytest.raises(rm.InvalidArgument, match=r"stop.*''"):
        say(["a", "E", "N", "D"], stop=stop).sync()


@pytest.mark.parametrize(
    ("tokens", "options", "value", "reason", "matched"),
    [
        (["H", "i", "!", "x"], {}, "Hi", "stop", "!"),
        (["H", "i", "!", "x"], {"include_stop": True}, "Hi!", "stop", "!"),
        (["H", "i"], {}, "Hi", "eos", None),
        (["H", "i", "x"], {"max_tokens": 2}, "Hi", "length", None),
    ],
)
def test_what_ended_a_call_can_be_known(
    say: Any, tokens: list[str], options: dict[str, Any], value: str, reason: str, matched: object
) -> None:
    """B33: the stop could not be kept, and which one fired could not be learned."""
    state = say(tokens, stop=[".", "!"], **options)
    assert "".join(state.text_iter("x")) == state["x"] == value
    meta = state.meta("x")
    assert meta["finish_reason"] == reason
    if reason != "eos":  # Else it is the end id.
        assert meta["matched"] == matched
    assert state.text() == f"Go:{value}"
