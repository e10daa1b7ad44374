from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang.marked import MarkedText, plain_text


def test_it_may_be_added_to_and_put_into_texts() -> None:
    text = MarkedText("<mark>")
    for made in (text + "a", "a" + text, f"{text}", str(text), "a" + text + "b"):
        assert type(made) is MarkedText
    assert plain_text("a" + text) == "a<mark>"
    assert plain_text(f"a {text}") == "a <mark>"
    assert type(plain_text(text)) is str
    assert text.encode() == b"<mark>"


@pytest.mark.parametrize(
    "look",
    [
        len,
        bool,
        list,
        hash,
        lambda text: text == "a",
        lambda text: text != "a",
        lambda text: text < "a",
        lambda text: "a" in text,
        lambda text: text[0],
        lambda text: text * 2,
        lambda text: {"a": 1}.get(text),
        lambda text: text.strip(),
        lambda text: text.startswith("a"),
        lambda text: f"{text:>9}",
    ],
)
def test_looking_into_it_is_refused_with_the_line(look: Callable[[Any], object]) -> None:
    with pytest.raises(rm.ProgramError, match=r"test_marked\.py:\d+: .*not known while tracing"):
        look(MarkedText("<mark>"))


def test_a_traced_program_cannot_look_into_what_it_does_not_know() -> None:
    bodies: list[Callable[..., object]] = [
        lambda s, q: f"{q}" == "yes",
        lambda s, q: len("Q: " + q),
        lambda s, q: {"yes": 1}.get(f"{q}"),
        lambda s, q: s.__iadd__(rm.gen("x", regex=f"{q}b")),
        lambda s, q: s.__iadd__(rm.gen("x", stop=f"a{q}")),
        lambda s, q: s.__iadd__(rm.select("x", [q, "b"])),
    ]
    for body in bodies:
        with pytest.raises(rm.RametError):
            rm.function(body).compile()
    chosen = rm.function(lambda s, q: s.__iadd__(rm.select("x", [f"{q}", f"{q}!"])))
    assert chosen.compile().graph.nodes[0].kind == "Select"
