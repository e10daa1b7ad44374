from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chat_templates import LLAMA_2
from fake_backend import FakeBackend, MakeBackend

import ramet.lang as rm

pytestmark = pytest.mark.timeout(30)
State = rm.ProgramState


def run(body: Callable[[State], Any]) -> State:
    return rm.function(body).run()


def test_one_for_all_a_list_and_a_function(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += "p"
        fs = s.fork(3)
        fs += "a"
        fs += ["0", "1", "2"]
        fs += lambda i: f"<{i}>" + rm.gen("x")
        assert len(fs) == 3
        assert [f.text() for f in fs] == [f"pa{i}<{i}>[6]" for i in range(3)]
        assert fs[1]["x"] == "[6]"
        with pytest.raises(rm.InvalidArgument, match="list of 2"):
            fs += ["a", "b"]

    run(body)


def test_gathering_takes_new_variables_in_order_and_drops_text(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s["old"] = 1
        fs = s.fork(3)
        for i, f in enumerate(fs):
            f += "x" * i + rm.gen("x")
            f["old"] = 2
        fs[1]["some"] = "one"
        backend.gate.clear()
        fs += rm.gen("late")
        fs.join()  # Waits for nothing.
        backend.gate.set()
        assert s["x"] == ["[0]", "[1]", "[2]"]
        assert s["some"] == ["one"]
        assert s["old"] == 1
        assert s["late"] == ["[3]", "[4]", "[5]"]
        assert [meta["finish_reason"] for meta in s.meta("x")] == ["eos"] * 3
        s += "end"
        for f in fs:
            with pytest.raises(rm.ProgramError, match="has been joined"):
                f += "more"
        with pytest.raises(rm.ProgramError, match="already"):
            fs.join()

    assert run(body).text() == "end"


def test_appending_equals_appending_the_branches_texts(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += "p"
        fs = s.fork(2)
        fs += ["a", "bb"]
        fs += rm.gen("x")
        fs.join("concate_and_append")
        assert "x" not in s
        s += rm.gen("y")

    state = run(body)
    assert state.text() == "pa[2]bb[3]" + "[10]"
    assert backend.prompts[-1] == "pa[2]bb[3]"


def test_appending_inside_an_open_message(make_backend: MakeBackend) -> None:
    make_backend(lambda *_: "gen", template=LLAMA_2)

    def body(s: State) -> None:
        s += rm.user("hi") + rm.assistant_begin()
        fs = s.fork(2)
        fs += ["one ", "two "]
        fs += rm.gen("x")
        fs.join("concate_and_append")
        s += rm.assistant_end()

    state = run(body)
    assert state.text() == "[INST] hi [/INST] one gentwo gen </s>"
    assert state.messages()[1]["content"] == "one gentwo gen"


def test_appending_whole_messages(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        fs = s.fork(2)
        fs += lambda i: rm.user(f"q{i}") + rm.assistant(rm.gen("a"))
        fs.join("concate_and_append")

    state = run(body)
    assert [m["role"] for m in state.messages()] == ["user", "assistant"] * 2
    assert state.text() == "".join(
        f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in state.messages()
    )


def test_appending_half_a_message_is_refused(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        fs = s.fork(1)
        fs += rm.user_begin() + "x"
        with pytest.raises(rm.ProgramError, match="left one open"):
            fs.join("concate_and_append")

    run(body)


def test_branches_nest_and_have_the_variables_of_their_fork(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s["a"] = 1
        outer = s.fork(2)
        s["b"] = 2
        assert "b" not in outer[0]
        for i, o in enumerate(outer):
            o["c"] = i
            inner = o.fork(2)
            inner += rm.gen("x")
            assert [f["c"] for f in inner] == [i, i]
            inner.join()
        outer.join()
        assert s["x"] == [["[0]", "[0]"]] * 2

    run(body)
    assert {handle.path for handle in backend.roots} == {""}


def test_a_join_that_is_unknown_is_refused(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        fs = s.fork(1)
        with pytest.raises(rm.InvalidArgument, match="gather_variable"):
            fs.join("splice")

    run(body)


def test_unjoined_branches_are_waited_for(backend: FakeBackend) -> None:
    kept = []

    def body(s: State) -> None:
        fs = s.fork(16)
        fs += rm.gen("x")
        kept.append(fs)

    run(body)
    assert backend.num_running == 0
    assert [f["x"] for f in kept[0]] == ["[0]"] * 16
    with pytest.raises(rm.ProgramError):
        kept[0] += "after"


def test_a_branch_may_be_written_by_its_index(backend: FakeBackend) -> None:
    @rm.function
    def program(s: rm.ProgramState) -> None:
        fs = s.fork(2)
        fs[0] += "a" + rm.gen("x")
        fs[1] += "b" + rm.gen("x")
        with pytest.raises(rm.ProgramError, match="replaced"):
            fs[0] = fs[1]
        fs.join()

    assert len(program.run()["x"]) == 2


def test_a_fork_has_a_documented_limit(backend: FakeBackend) -> None:
    from ramet.runtime.client.handle import MAX_FORKS

    with rm.Runtime("tiny", isolation="thread", pool_tokens=256) as runtime:
        handle = runtime.open()
        for n in (0, MAX_FORKS + 1, 10**400, True, 1.5):
            with pytest.raises(rm.InvalidArgument, match="n="):
                handle.fork(n)  # type: ignore[arg-type]
