"""Patterns accept exactly the texts in which `re.search` finds them."""

from __future__ import annotations

import itertools
import re

import pytest
from documents import taken

from ramet.runtime.grammar.json_schema.search import BadPattern, Hard, search, translated, whole
from ramet.runtime.grammar.json_schema.spelling import Terminals

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("ab1\n é", repeat=n)]


def accepted(pattern: str, texts: list[str]) -> list[str]:
    terminals = Terminals()
    return taken(terminals, terminals.text(search(pattern)), texts)


@pytest.mark.parametrize(
    "pattern",
    [
        "[0-9]",
        r"\S",
        "^a",
        "b$",
        "^ab$",
        "^a|b$",
        "(^a|b)b",
        "a^b",
        "(?!a)b",
        "^(?!ab)[ab1]+$",
        r"\bab\b",
        r"(?<=a)b",
        "(?<!a)b$",
        "a(?=b)",
        "a(?=b$)",
        r"^\w+$",
        "(a|^)(b|$)",
        "",
        "^$",
        "$",
        "^",
        "a*^b",
        "x{0}$",
        "(?i)AB",
        ".",
        "^.$",
        r"^.\Z",
        "(?:^|1)a(?:1|$)",
        r"(?<!\w)a",
        "^(?=.*a)(?=.*1).+$",
        "^(?!.*(a|b)$)",
        "(?s)a.b",
        r"a\B.",
        "^(a|(?!b).)$",
    ],
)
def test_as_python_searches(pattern: str):
    assert accepted(pattern, TEXTS) == [text for text in TEXTS if re.search(pattern, text)]


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"^\p{L}$", ["a", "é", "ß"]),
        (r"^\P{L}[^\p{Lu}\n]$", ["1a"]),
        (r"^\u{1F600}$", ["\U0001f600"]),
        (r"^(?<year>1)\cJ$", ["1\n"]),
        (r"^[^][[]$", ["a["]),
    ],
)
def test_what_only_ecmascript_has(pattern: str, texts: list[str]):
    assert accepted(pattern, [*texts, "1A", "A1", "\U0001f601", "2\n", "a]"]) == texts


@pytest.mark.parametrize("pattern", [r"(a)\1", "(a$|b)*", "(?m)^a", "(?>a)", "a++"])
def test_what_is_too_hard(pattern: str):
    with pytest.raises(Hard):
        search(pattern)


@pytest.mark.parametrize("pattern", ["(", "[", "a**", r"\q", "*", r"\p{Nonsense}"])
def test_what_is_malformed(pattern: str):
    with pytest.raises(BadPattern):
        search(pattern)


def test_nothing_else_is_translated():
    for pattern in (r"\\u{4}", r"[\]p{L}]", r"a\/b", r"\\p{L}", "[[a]", r"(?<=a)b"):
        assert translated(pattern) == pattern
    assert whole("a|b") == search(r"\A(?:a|b)\Z")
