"""Compiled runs against interpreted ones, over programs made at random; and how they fail."""

from __future__ import annotations

import dataclasses
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend
from random_programs import ARGS, Maker, RecordingBackend, outcome
from scripted_runtime import idle
from watchdog import watchdog

import ramet.lang as rm
from ramet.lang.compiled import CompiledFunction
from ramet.runtime.graph import Fork, Join
from ramet.runtime.runtime import Runtime

pytestmark = pytest.mark.timeout(120)
State = rm.ProgramState


def compiled(body: Callable[..., Any], **constants: Any) -> CompiledFunction:
    return rm.function(body).compile(**constants)


@pytest.fixture
def recording() -> Iterator[RecordingBackend]:
    backend = RecordingBackend()
    rm.set_default_backend(backend)
    yield backend
    rm.set_default_backend(None)
    backend.audit()
    backend.shutdown()


# Equal results


@watchdog(100)
@pytest.mark.filterwarnings("ignore:.*nobody can read")
def test_random_programs_give_the_same_and_ask_the_same(recording: RecordingBackend) -> None:
    for number in range(150):
        program = rm.function(Maker(number).program().body)
        expected = outcome(program.run(**ARGS, seed=number))
        asked = sorted(map(repr, recording.seen))
        recording.seen.clear()
        found = outcome(program.compile().run(**ARGS, seed=number))
        assert found == expected, f"program {number}"
        assert sorted(map(repr, recording.seen)) == asked, f"program {number}"
        recording.seen.clear()


@watchdog(100)
@pytest.mark.filterwarnings("ignore:.*nobody can read")
def test_random_programs_generate_the_same_tokens_on_a_model() -> None:
    with Runtime("tiny", dtype="float64", pool_tokens=32768, isolation="thread") as runtime:
        for number in range(12):
            program = rm.function(Maker(number).program().body)
            options: dict[str, Any] = {"seed": number, "backend": runtime, "ignore_eos": True}
            plain = program.run(**ARGS, **options)
            walked = program.compile().run(**ARGS, **options)
            assert outcome(walked) == outcome(plain), f"program {number}"
            assert ids_of(walked) == ids_of(plain), f"program {number}"
        idle(runtime)


def ids_of(state: State) -> dict[str, Any]:
    """The token ids behind each variable that one call made."""
    found = {}
    for name in state._branch.variables:
        try:
            meta = state.meta(name)
        except rm.ProgramError:
            continue
        metas = meta if isinstance(meta, list) else [meta]
        found[name] = [m["output_token_ids"] for m in metas if "output_token_ids" in m]
    return found


@watchdog(60)
@pytest.mark.parametrize("mode", ["gather_variable", "concate_and_append"])
def test_merging_equal_branches_changes_no_result(recording: RecordingBackend, mode: str) -> None:
    def body(s: State, q: str) -> None:
        s += q
        fs = s.fork(4)
        for i, f in enumerate(fs):
            f += f"x{q}" + rm.gen("a", temperature=0, max_tokens=3)
            f += "y" if i % 2 else "z"
            f += rm.gen("b", temperature=1 if i == 3 else 0)
        fs.join(mode)
        s += rm.gen("end")

    program = rm.function(body)
    expected = outcome(program.run("Q", seed=1))
    asked = len(recording.seen)
    made = program.compile()
    assert outcome(made.run("Q", seed=1)) == expected
    assert len(recording.seen) == 2 * asked - 2, "one branch of four is run by its twin"
    fork = next(node for node in made.graph.nodes if isinstance(node, Fork))
    join = next(node for node in made.graph.nodes if isinstance(node, Join))
    assert len(fork.children) == 4
    assert join.children[0] == join.children[2] != join.children[1]


@watchdog(60)
def test_nested_programs_in_tools_have_the_seeds_of_the_program_order(
    recording: RecordingBackend,
) -> None:
    turn = threading.Condition()
    order: list[int] = []

    @rm.function
    def inner(s: State, text: str) -> None:
        s += text + rm.gen("a")

    def deep(text: str) -> str:
        return str(inner.run(text)["a"] + rm.call(lambda: inner.run(text)["a"]))

    def tool(number: int, last_first: bool, text: str) -> str:
        if last_first:
            with turn:
                turn.wait_for(lambda: len(order) == 2 - number)
        found = deep(text) + str(inner.run(text)["a"])
        with turn:
            order.append(number)
            turn.notify_all()
        return found

    @rm.function
    def outer(s: State, last_first: Any) -> None:
        for number in range(3):
            s[f"t{number}"] = rm.call(tool, number, last_first, "same")
        s["after"] = rm.call(deep, s["t0"])
        s += s["t0"] + s["t1"] + s["t2"] + rm.gen("end")

    plain = outer.run(last_first=False, seed=5)
    seeds = sorted(repr(seen) for seen in recording.seen)
    recording.seen.clear()
    for last_first in (False, True):
        order.clear()
        walked = outer.compile().run(last_first=last_first, seed=5)
        assert outcome(walked) == outcome(plain)
        assert sorted(repr(seen) for seen in recording.seen) == seeds
        recording.seen.clear()
        assert not last_first or order == [2, 1, 0]
    assert len({plain[f"t{i}"] for i in range(3)}) == 3


# Threads


@watchdog(60)
def test_instances_need_no_thread(backend: FakeBackend) -> None:
    dead = False

    @rm.function
    def program(s: State, q: str) -> str:
        if dead:
            raise AssertionError("a compiled program has no body")
        s += q + rm.gen("a")
        fs = s.fork(2)
        fs += f"<{s['a']}>" + rm.gen("b")
        fs.join()
        s += "end" + rm.gen("c")
        return str(s["a"])

    made = program.compile()
    dead = True
    backend.gate.clear()
    states: list[State] = []
    before = threading.active_count()
    caller = threading.Thread(
        target=lambda: states.extend(made.run_batch([{"q": f"{i}"} for i in range(200)]))
    )
    caller.start()
    while backend.num_running < 200:
        time.sleep(0.002)
    assert threading.active_count() <= before + 1
    backend.gate.set()
    caller.join()
    assert [state.ret_value for state in states] == [state["a"] for state in states]
    assert [len(state["b"]) for state in states] == [2] * 200


@watchdog(60)
@pytest.mark.parametrize("limit", [1, 3])
def test_tools_that_run_programs_with_tools_get_by_with_few_threads(
    backend: FakeBackend, max_threads: Callable[[int], None], limit: int
) -> None:
    max_threads(limit)
    together = threading.Barrier(limit)
    inner = compiled(lambda s, x: s.set_var("b", rm.call(str.upper, x)))
    middle = compiled(lambda s, x: s.set_var("b", rm.call(lambda y: inner.run(y)["b"], x)))

    def tool(text: str) -> Any:
        together.wait(20)  # Every thread there is runs a tool that waits for another one.
        return middle.run(text)["b"]

    outer = compiled(lambda s, x: s.set_var("c", rm.call(tool, x)))
    states = outer.run_batch([{"x": f"x{i}"} for i in range(3 * limit)])
    assert [state["c"] for state in states] == [f"X{i}" for i in range(3 * limit)]


def test_arguments_are_let_go_after_a_run(backend: FakeBackend) -> None:
    import gc
    import weakref

    class Big: ...

    big = Big()
    alive = weakref.ref(big)
    state = compiled(lambda s, big: s.set_var("n", rm.call(lambda b: 3, big))).run(big)
    del big
    gc.collect()
    assert state["n"] == 3
    assert alive() is None


def test_plans_are_data(backend: FakeBackend) -> None:
    """What a run may change is not the plan's: a constant list is a new one in each run."""

    def grow(items: list[int]) -> list[int]:
        items.append(1)
        return items

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = compiled(lambda s: s.set_var("x", rm.call(grow, [0])))
    assert [made.run()["x"] for _ in range(2)] == [[0, 1], [0, 1]]
    assert all(dataclasses.is_dataclass(node) for node in made.graph.nodes)
