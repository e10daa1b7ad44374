from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import ramet.lang as rm
from ramet.lang.cli import main
from ramet.runtime.graph import Call, Fork, Gen, Graph, Join, Read, Ref, Select, Text


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
    q = Ref(arg="q")
    assert parts == ["a", q, q, "b", q, "c", q, "  7", q, "no \x00 mark"]
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
    assert (chosen.branch, chosen.choices) == (2, ((Ref(arg="q"), "!"), ("no",)))
    second = next(node for node in found if isinstance(node, Gen) and node.branch == 1)
    join = next(node for node in found if isinstance(node, Join))
    assert join.gathered == {"b": (Ref(node=second.id), Ref(node=chosen.id))}
    tool = next(node for node in found if isinstance(node, Call))
    assert tool.args == (Ref(node=gen.id), "!")
    assert tool.function.endswith("shout")
    read = next(node for node in found if isinstance(node, Read))
    assert (read.name, read.value) == ("c", Ref(node=tool.id))
    assert [n.parts for n in found[-2:] if isinstance(n, Text)] == [
        (Ref(node=tool.id),),
        (Ref(node=chosen.id),),
    ]


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
    def spans(s: Any) -> None:
        with s.var_scope("v"):
            s += "a"

    for body in (spans, lambda s: s.text(), lambda s: s.messages(), lambda s: s["nothing"]):
        with pytest.raises(rm.ProgramError):
            rm.function(body).trace()
    with pytest.raises(rm.InvalidArgument, match="'typo'"):
        rm.function(lambda s, q: None).trace(typo=1)


def test_call_runs_the_tool_where_nothing_is_traced() -> None:
    assert rm.call(len, "abc") == 3
    with pytest.raises(rm.InvalidArgument, match="function=3"):
        rm.call(3)


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
