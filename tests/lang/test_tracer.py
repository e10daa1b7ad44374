from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

import ramet.lang as rm
from ramet.lang.cli import main
from ramet.runtime.graph import Call, Fork, Gen, Graph, Join, Read, Select
from ramet.runtime.graph_values import Ref


def nodes(program: rm.Function, **constants: Any) -> list[Any]:
    graph = program.trace(**constants)
    assert Graph.from_dict(graph.to_dict()) == graph
    return list(graph.nodes)


def test_text_knows_its_arguments_however_they_are_written() -> None:
    @rm.function
    def program(s: Any, q: Any, k: Any) -> None:
        s += "a" + q
        s += q + "b" + q
        s += f"c{q}{k:>3}"
        s += str(q)
        s += "no \x00 mark"

    found = nodes(program, k=7)
    parts = [part for node in found for part in node.parts]
    q, text = Ref(arg="q"), Ref(arg="q", text=True)
    assert parts == ["a", q, q, "b", q, "c", text, "  7", text, "no \x00 mark"]
    assert all(node.site.rpartition(":")[0] == __file__ for node in found)


def test_calls_forks_joins_and_tools_become_nodes() -> None:
    def shout(text: str, mark: str) -> str:
        raise AssertionError("a traced program calls no tool")

    @rm.function
    def program(s: Any, q: Any) -> None:
        s += rm.user(q) + rm.assistant(rm.gen("a", max_tokens=3, temperature=0))
        fs = s.fork(2)
        fs[0] += "x" + rm.gen("b")
        fs[1] += rm.select("b", [f"{q}!", "no"])
        fs.join()
        s["c"] = rm.call(shout, s["a"], "!")
        s += s["c"] + s["b"][1]

    found = nodes(program)
    kinds = [node.kind for node in found]
    assert kinds[:5] == ["Text", "Text", "Text", "Text", "Gen"]
    gen = next(node for node in found if isinstance(node, Gen))
    assert gen.params == {"max_new_tokens": 3, "temperature": 0}
    fork = next(node for node in found if isinstance(node, Fork))
    assert fork.children == (1, 2)
    chosen = next(node for node in found if isinstance(node, Select))
    assert (chosen.branch, chosen.choices) == (2, ((Ref(arg="q", text=True), "!"), ("no",)))
    second = next(node for node in found if isinstance(node, Gen) and node.branch == 1)
    join = next(node for node in found if isinstance(node, Join))
    assert join.gathered == {"b": (Ref(node=second.id), Ref(node=chosen.id))}
    tool = next(node for node in found if isinstance(node, Call))
    assert tool.args == (Ref(node=gen.id), "!")
    assert tool.function.endswith("shout")
    read = next(node for node in found if isinstance(node, Read))
    assert (read.name, read.value) == ("c", Ref(node=tool.id))
    assert found[-1].parts == (Ref(node=tool.id), Ref(node=chosen.id))


@pytest.mark.parametrize(
    "use",
    [
        lambda x: bool(x),
        lambda x: len(x),
        lambda x: list(x),
        lambda x: x == "a",
        lambda x: x < "a",
        lambda x: x[0],
        lambda x: "a" in x,
        lambda x: x.upper(),
        lambda x: int(x),
        lambda x: f"{x:>5}",
        lambda x: {x: 1},
    ],
)
def test_what_needs_the_value_is_refused_with_its_line(use: Any) -> None:
    by_argument = rm.function(lambda s, q: use(q))
    by_value = rm.function(lambda s: [s.__iadd__("a" + rm.gen("x")), use(s["x"])])
    for program in (by_argument, by_value):
        with pytest.raises(rm.ProgramError, match=r"test_tracer\.py:\d+: .* while tracing"):
            program.trace()


def test_what_has_no_place_in_a_trace_says_so() -> None:
    for body in (lambda s: s.text(), lambda s: s.messages(), lambda s: s["nothing"]):
        with pytest.raises(rm.ProgramError):
            rm.function(body).trace()
    with pytest.raises(rm.InvalidArgument, match="'typo'"):
        rm.function(lambda s, q: None).trace(typo=1)


def test_call_runs_the_tool_where_nothing_is_traced() -> None:
    assert rm.call(len, "abc") == 3
    with pytest.raises(rm.InvalidArgument, match="function=3"):
        rm.call(3)


async def coroutine(text: str) -> str:
    return text


@rm.function
def inner(s: Any) -> None:
    s += "inner"


@rm.function
async def inner_async(s: Any) -> None:
    s += "inner"


@rm.function
async def awaits_a_program(s: Any, q: Any) -> None:
    await inner_async.arun()


@rm.function
async def awaits_a_batch(s: Any, q: Any) -> None:
    await inner_async.arun_batch([{}])


REFUSED = {
    "a stop": lambda s, q: s.__iadd__(rm.gen("x", stop=f"{q}")),
    "a list of stops": lambda s, q: s.__iadd__(rm.gen("x", stop=["a", f"{q}"])),
    "a symbol as stop": lambda s, q: s.__iadd__(rm.gen("x", stop=q)),
    "max_tokens": lambda s, q: s.__iadd__(rm.gen("x", max_tokens=q)),
    "temperature": lambda s, q: s.__iadd__(rm.gen("x", temperature=q)),
    "a name": lambda s, q: s.__iadd__(rm.gen(f"{q}")),
    "a symbol as name": lambda s, q: s.__iadd__(rm.gen(q)),
    "a name that is set": lambda s, q: s.set_var(f"{q}", 1),
    "a scope's name": lambda s, q: s.var_scope(f"{q}").__enter__(),
    "upper case": lambda s, q: s.__iadd__(f"{q}".upper()),
    "a slice": lambda s, q: s.__iadd__(f"a {q}"[:4]),
    "a slice in a set value": lambda s, q: s.set_var("x", [f"{q}"[1:]]),
    "a slice in a call": lambda s, q: rm.call(len, f"{q}"[1:]),
    "a slice in a choice": lambda s, q: s.__iadd__(rm.select("x", ["a", f"{q}"[1:]])),
    "a list's text": lambda s, q: s.__iadd__(f"{[q]}"),
    "joined symbols": lambda s, q: s.__iadd__(", ".join([q])),
    "a product": lambda s, q: s.__iadd__("a" * q),
    "a range": lambda s, q: range(q),
    "a nested run": lambda s, q: inner.run(),
    "a nested batch": lambda s, q: inner.run_batch([{}]),
    "a nested compiled run": lambda s, q: compiled_inner().run(),
    "a coroutine function": lambda s, q: rm.call(coroutine, q),
    "meta": lambda s, q: [s.__iadd__(rm.gen("x")), s.meta("x")],
    "text": lambda s, q: s.text(),
    "messages": lambda s, q: s.messages(),
    "sync": lambda s, q: s.sync(),
    "error": lambda s, q: s.error(),
    "cancel": lambda s, q: s.cancel(),
    "graph": lambda s, q: s.graph(),
    "text_iter": lambda s, q: s.text_iter(),
    "text_iter of a name": lambda s, q: [s.__iadd__(rm.gen("x")), next(s.text_iter("x"))],
    "an unknown name": lambda s, q: s["nothing"],
    "a fork of a symbol": lambda s, q: s.fork(q),
    "what is no text": lambda s, q: s.__iadd__(3),
    "a wrong argument": lambda s, q: s.__iadd__(rm.gen("x", max_tokens=-1)),
    "a wrong join": lambda s, q: s.fork(2).join("both"),
    "arun": awaits_a_program._body,
    "arun_batch": awaits_a_batch._body,
}


def compiled_inner() -> Any:
    return COMPILED


COMPILED = inner.compile()


@pytest.mark.parametrize("what", REFUSED)
def test_every_refusal_names_file_and_line(what: str) -> None:
    def no_backend() -> Any:
        raise AssertionError("a trace starts no backend")

    rm.set_default_backend(no_backend)
    try:
        for start in (rm.function(REFUSED[what]).trace, rm.function(REFUSED[what]).compile):
            with pytest.raises((rm.ProgramError, rm.InvalidArgument)) as caught:
                start()
            assert "test_tracer.py:" in str(caught.value)
            assert str(caught.value).isprintable(), "no mark is shown"
    finally:
        rm.set_default_backend(None)


def test_an_exception_of_the_bodys_own_is_left_alone() -> None:
    for error in (KeyError("k"), TypeError("t"), ZeroDivisionError()):

        def body(s: Any, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            rm.function(body).trace(error=error)
        assert caught.value is error


def test_variables_that_the_body_sets_are_read_as_they_were_set() -> None:
    @rm.function
    def program(s: Any, q: Any) -> None:
        s["pair"] = ("a", q)
        s["list"] = [q, s["pair"][0]]
        fs = s.fork(2)
        for i, f in enumerate(fs):
            f["own"] = i
            assert f["own"] == i
        fs.join()
        assert s["own"] == [0, 1]
        s += s["list"][0] + s["pair"][0]

    found = nodes(program)
    pair, listed = (node.value for node in found if isinstance(node, Read) and not node.branch)
    assert (pair, listed) == (("a", Ref(arg="q")), [Ref(arg="q"), "a"])
    reads = [node.id for node in found if isinstance(node, Read) and node.branch]
    join = next(node for node in found if isinstance(node, Join))
    assert join.gathered == {"own": tuple(Ref(node=id) for id in reads)}
    assert found[-1].parts == (Ref(arg="q"), "a")


def test_an_async_body_is_traced_if_it_awaits_only_its_values() -> None:
    @rm.function
    async def program(s: Any, q: Any) -> Any:
        s += q + rm.gen("a")
        fs = s.fork(2)
        fs += rm.gen("b")
        await fs.ajoin("concate_and_append")
        s += "x" + await s.get("a")
        return s["a"]

    found = nodes(program)
    kinds = ["Text", "Gen", "Fork", "Gen", "Gen", "Join", "Text", "Read"]
    assert [node.kind for node in found] == kinds
    assert found[-1].edge == "return"

    @rm.function
    async def waits(s: Any) -> None:
        await asyncio.get_running_loop().create_future()

    @rm.function
    async def sleeps(s: Any) -> None:
        await Forever()

    async def in_a_loop() -> None:
        for stuck in (waits, sleeps):
            with pytest.raises(rm.ProgramError, match="can't be traced"):
                stuck.trace()

    asyncio.run(asyncio.wait_for(in_a_loop(), 20))


class Forever:
    def __await__(self) -> Any:
        yield


def test_the_command_prints_a_chart_or_data(tmp_path: Any) -> None:
    file = tmp_path / "prog.py"
    file.write_text(
        "import ramet.lang as rm\n"
        "@rm.function\n"
        "def ask(s, q):\n"
        "    s += q + rm.gen('a')\n"
        "not_a_program = 3\n"
    )
    chart = CliRunner().invoke(main, ["graph", f"{file}:ask"])
    assert chart.exit_code == 0
    assert chart.output.startswith("flowchart TD")
    data = CliRunner().invoke(main, ["graph", f"{file}:ask", "--json"])
    assert '"version": 1' in data.output
    for wrong in (f"{file}:not_a_program", f"{tmp_path}/none.py:ask", "ask"):
        assert CliRunner().invoke(main, ["graph", wrong]).exit_code == 2


@pytest.mark.parametrize(
    "body",
    [
        lambda s: s.fork(2)[0],
        lambda s: [s.fork(1)[0]],
        lambda s: rm.call(print, s.fork(2)[1]),
    ],
)
def test_states_of_a_traced_program_stay_inside(body: Any) -> None:
    with pytest.raises(rm.ProgramError, match=r"test_tracer\.py:\d+: .*no value to pass on"):
        rm.function(body).compile()
