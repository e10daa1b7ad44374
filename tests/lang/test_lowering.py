from __future__ import annotations

import pytest

import ramet.lang as rm
from ramet.lang.expr import Expr, RoleBegin, RoleEnd, Sum, Text
from ramet.lang.lowering import literal_parts, lower
from ramet.runtime import graph
from ramet.runtime.graph_values import Ref


def test_texts_and_roles() -> None:
    assert lower(Text("a")) == (graph.Text, {"parts": ("a",), "special": False})
    assert lower(Text("")) == (graph.Text, {"parts": (), "special": False})
    assert lower(Text("<|x|>", special=True))[1]["special"]
    assert lower(RoleBegin("user")) == (graph.Text, {"role": "user", "edge": "begin"})
    assert lower(RoleEnd("user")) == (graph.Text, {"role": "user", "edge": "end"})


def test_calls_keep_what_the_program_set() -> None:
    kind, fields = lower(rm.gen("x", max_tokens=3, stop="a", return_text_in_logprobs=False))
    assert kind is graph.Gen
    assert fields["name"] == "x"
    assert fields["params"] == {"max_new_tokens": 3, "stop": "a"}
    assert not fields["logprob_texts"]
    kind, fields = lower(
        rm.select("c", ["a", ""], choices_method=rm.exact_likelihood, temperature=0.5)
    )
    assert kind is graph.Select
    assert fields == {
        "name": "c",
        "choices": (("a",), ()),
        "method": "exact_likelihood",
        "temperature": 0.5,
    }


def test_values_in_texts_and_choices_become_references() -> None:
    def parts(text: str) -> tuple[str | Ref, ...]:
        return tuple(Ref(arg="q") if part == "?" else part for part in text)

    assert lower(Text("a?"), parts)[1]["parts"] == ("a", Ref(arg="q"))
    assert lower(rm.select("c", ["?", "b"]), parts)[1]["choices"] == ((Ref(arg="q"),), ("b",))
    assert literal_parts("a?") == ("a?",)


def test_other_expressions_are_refused() -> None:
    for other in (Expr(), Sum((Text("a"), Text("b")))):
        with pytest.raises(rm.ProgramError, match="cannot append"):
            lower(other)
