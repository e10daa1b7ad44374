"""Constraints end to end: programs on the embedded engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang.typed import REGEXES, typed_value
from ramet.runtime.graph import Graph
from ramet.runtime.runtime import Runtime


@pytest.fixture(scope="module")
def tiny() -> Iterator[Runtime]:
    with Runtime("tiny", isolation="thread", pool_tokens=16384, dtype="float64") as runtime:
        yield runtime


@rm.function
def typed(s: rm.ProgramState, dtype: Any) -> None:
    s += "A value: " + rm.gen("x", dtype=dtype, max_tokens=1400)


@pytest.mark.parametrize("dtype", [int, float, bool, str])
def test_typed_decoding_always_parses(tiny: Runtime, dtype: type) -> None:
    """A random model at temperature 1 has no wish to write what it writes."""
    seeds = list(range(12 if dtype is str else 40))  # A string has some hundred tokens.
    states = typed.run_batch([{"dtype": dtype} for _ in seeds], seed=seeds, backend=tiny)
    whole = 0
    for state in states:
        meta = state.meta("x")
        assert meta["constraint"]["text"] == REGEXES[dtype.__name__]
        if meta["finish_reason"] != "length" or meta["constraint"]["complete"]:
            assert type(typed_value(dtype.__name__, state["x"])) is dtype
            assert re.fullmatch(REGEXES[dtype.__name__], state["x"])
            whole += 1
        else:
            with pytest.raises(rm.ProgramError, match="no whole"):
                typed_value(dtype.__name__, state["x"])
    assert whole >= len(seeds) - 2


@rm.function
def several(s: rm.ProgramState) -> None:
    s += "Q: " + rm.gen("city", regex="[A-Z][a-z]{2,8}", n=3)
    s += ", " + rm.gen_int("year", max_tokens=8) + " " + rm.gen("word", max_tokens=3)


def test_calls_go_on_behind_constrained_ones(tiny: Runtime) -> None:
    state = several.run(seed=1, backend=tiny)
    assert all(re.fullmatch("[A-Z][a-z]{2,8}", city) for city in state["city"])
    typed_value("int", state["year"])
    assert state.text() == f"Q: {state['city'][0]}, {state['year']} {state['word']}"
    again = several.run(seed=1, backend=tiny)
    assert again.text() == state.text()


def test_a_stream_of_a_constrained_call_joins_to_its_text(tiny: Runtime) -> None:
    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Q" + rm.gen("x", regex=r"(\w{1,3}-){2,6}\w", stop="END", max_tokens=60)

    state = program.run(seed=4, stream=True, backend=tiny)
    chunks = list(state.text_iter("x"))
    assert "" not in chunks
    assert "".join(chunks) == state["x"]


def test_a_traced_program_keeps_its_constraints() -> None:
    graph = several.trace()
    copy = Graph.from_dict(graph.to_dict())
    assert copy.to_dict() == graph.to_dict()
    assert "[A-Z][a-z]{2,8}" in str(copy.to_dict())


def test_a_bad_regex_is_the_programs_error(tiny: Runtime) -> None:
    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Q" + rm.gen("x", regex="(?!a)b")

    with pytest.raises(rm.GrammarError, match="position 0"):
        program.run(backend=tiny)


@pytest.mark.model
def test_the_built_in_model_answers_in_types() -> None:
    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Q: How much is 3 plus 4?\nA: " + rm.gen_int("sum", max_tokens=4)
        s += "\nQ: Is fire cold? True or False?\nA: " + rm.gen("cold", dtype=bool)
        s += "\nQ: On which date did it happen?\nA: " + rm.gen(
            "date", regex=r"\d{4}-[01]\d-[0-3]\d"
        )

    with Runtime(pool_tokens=4096) as runtime:
        states = program.run_batch([{}] * 3, seed=[1, 2, 3], backend=runtime)
        greedy = program.run(temperature=0, backend=runtime)
    for state in (*states, greedy):
        assert isinstance(typed_value("int", state["sum"]), int)
        assert typed_value("bool", state["cold"]) in (True, False)
        assert re.fullmatch(r"\d{4}-[01]\d-[0-3]\d", state["date"])
        assert state.meta("date")["finish_reason"] == "stop"


@rm.function
def tagged(s: rm.ProgramState) -> None:
    s += "Calls: " + rm.gen("calls", structural_tags=CALLS, max_tokens=80)
    s += "\nText: " + rm.gen("text", structural_tags=THINK, max_tokens=80)


DIGITS = {"begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]{1,3}"}, "end": "</n>"}
WORD = {"begin": "<w>", "content": {"type": "regex", "pattern": "[a-z]{1,3}"}, "end": "</w>"}
CALLS = {
    "type": "structural_tag",
    "format": {
        "type": "tags_with_separator",
        "tags": [DIGITS, WORD],
        "separator": ", ",
        "at_least_one": True,
    },
}
THINK = {
    "structures": [{"begin": "a", "regex": "[0-9]{2}", "end": "!"}, {"begin": "e", "end": "t"}],
    "triggers": ["a", "e"],
}


def test_structural_tags_are_kept_by_a_model_that_has_no_wish_to(tiny: Runtime) -> None:
    seeds = list(range(12))
    states = tagged.run_batch([{} for _ in seeds], seed=seeds, backend=tiny)
    regions = 0
    for state in states:
        if state.meta("calls")["constraint"]["complete"]:
            for piece in state.value("calls"):
                if isinstance(piece, str):
                    assert piece == ", "
                else:
                    pattern = "[0-9]{1,3}" if piece.begin == "<n>" else "[a-z]{1,3}"
                    assert re.fullmatch(pattern, piece.value)
                    regions += 1
        if state.meta("text")["constraint"]["complete"]:
            for piece in state.value("text"):
                if isinstance(piece, str):
                    assert not re.search("[ae]", piece)
                else:
                    assert piece.begin == "e" or re.fullmatch("[0-9]{2}", piece.value)
                    regions += 1
        else:
            with pytest.raises(rm.ProgramError, match="only the beginning"):
                state.value("text")
    assert regions >= 8
