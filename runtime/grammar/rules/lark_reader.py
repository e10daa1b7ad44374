"""Reading a Lark grammar's text, with Lark's own grammar of grammars: statements and their places.

Lark's reader of files and its compiler aren't used: they would read imports from disk, and write
out every way through a chain of optional parts.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from typing import Any, NoReturn

from ramet.runtime.errors import GrammarError, UnsupportedFeature
from ramet.runtime.grammar.rules.book import Places

STATEMENTS = {
    "declare": "%declare (a terminal without a text)",
    "override": "%override",
    "extend": "%extend",
}
"""What isn't supported, by what Lark calls it."""

COMMON = {
    "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
    "C_COMMENT": r"/\*([^*]|\*+[^*/])*\*+/",
}
"""Terminals of `common` whose own regexes aren't regular, or stop at the first end that they find:
the same texts without that."""
COMMON_REFUSED = ("_STRING_INNER", "_STRING_ESC_INNER")


@dataclasses.dataclass(slots=True)
class Definition:
    """A rule or a terminal."""

    name: str
    body: Any
    """Lark's tree of `expansions`; a regex for terminals of `common` that Lark writes otherwise."""
    token: Any
    """Its name where it is defined, with line and column."""
    common: bool = False
    """Whether the names in its body are those of `common`."""


class Statements:
    """The definitions of a text by name; terminals of `common` have `common.` before theirs."""

    def __init__(self, text: str) -> None:
        self.places = Places("lark", text)
        self.definitions: dict[str, Definition] = {}
        self.aliases: dict[str, str] = {}
        """What imported terminals are called here, and their name among the definitions."""
        self.ignored: list[Any] = []
        """Trees of `expansions`."""
        for statement in self._parsed(text).children:
            self._take(statement)

    def fail(self, token: Any, message: str) -> NoReturn:
        """Raise GrammarError for what stands at a token of Lark's."""
        self.places.fail_at(token.line, token.column, message)

    def _parsed(self, text: str) -> Any:
        lark = lark_package()
        loader = _loader()
        parser = loader._get_parser()
        try:
            return parser.parse(text + "\n", "start")
        except lark.UnexpectedToken as error:
            if error.token.type == "$END":
                message = "the grammar ends within a rule"
                if not text.strip():
                    message = "there is no rule start, with which every text starts"
                self.places.fail(max(0, len(text) - 1), message)
            why = loader._translate_parser_exception(parser.parse, error)
            self.fail(error, f"{why or 'unexpected'}: {str(error.token)[:40]!r}")
        except lark.UnexpectedCharacters as error:
            found = text[error.pos_in_stream : error.pos_in_stream + 10]
            self.fail(error, f"{found!r}: expected a rule, a terminal, a literal or a sign")

    def _take(self, statement: Any) -> None:
        match statement.data:
            case "rule":
                self._rule(*statement.children)
            case "term":
                name, body = statement.children[0], statement.children[-1]
                self._check_terminal(body)
                self._define(name, Definition(name.value, body, name))
            case "ignore":
                self._check_terminal(statement.children[0])
                self.ignored.append(statement.children[0])
            case "import":
                self._import(*statement.children)
            case kind:
                token = next(statement.scan_values(lambda value: hasattr(value, "line")))
                self.fail(token, f"{STATEMENTS.get(kind, kind)} is not supported")

    def _check_terminal(self, body: Any) -> None:
        for tree in body.find_data("alias"):
            alias = tree.children[1].children[0]
            self.fail(alias, f"-> {alias}: only options of rules can have an alias")

    def _rule(self, modifiers: Any, name: Any, parameters: Any, priority: Any, body: Any) -> None:
        if parameters is not None and parameters.children:
            self.fail(name, f"{name}{{…}}: templates are not supported")
        if "?" in "".join(modifiers.children) and name.startswith("_"):
            self.fail(name, f"?{name}: a rule whose name begins with _ can't be marked with ?")
        for tree in body.find_data("alias"):
            del tree.children[1:]
        self._define(name, Definition(name.value, body, name))

    def _define(self, name: Any, definition: Definition) -> None:
        if name.startswith("__"):
            self.fail(name, f"{name}: names that begin with __ are Lark's own")
        if name in self.definitions or name in self.aliases:
            self.fail(name, f"{name} is defined twice")
        self.definitions[name.value] = definition

    def _import(self, path: Any, names: Any = None) -> None:
        first = path.children[0]
        called = ".".join(path.children)
        if path.data != "import_lib" or first != "common" or len(path.children) > 2:
            self.fail(first, f"%import {called}: only terminals of common can be imported")
        if len(path.children) == 1:
            if names is None:
                self.fail(first, "%import common: say which terminals, as in %import common.INT")
            pairs = [(name, name) for name in names.children]
        else:
            pairs = [(path.children[1], names if names is not None else path.children[1])]
        for name, alias in pairs:
            if name.value not in common_terminals() or name.value in COMMON_REFUSED:
                self.fail(name, f"%import common.{name}: there is no such terminal to import")
            if alias.type != "TERMINAL":
                self.fail(alias, f"{alias}: an imported terminal needs an upper-case name")
            if alias.value in self.definitions or alias.value in self.aliases:
                self.fail(alias, f"{alias} is defined twice")
            self.aliases[alias.value] = f"common.{name}"

    def find(self, token: Any, common: bool) -> Definition:
        """What a name means where it stands."""
        if common:
            return common_terminals()[token.value]
        if token.value in self.aliases:
            return common_terminals()[self.aliases[token.value].removeprefix("common.")]
        found = self.definitions.get(token.value)
        if found is None:
            kind = "terminal" if token.value.isupper() else "rule"
            self.fail(token, f"there is no {kind} {token}")
        return found


@functools.lru_cache(maxsize=1)
def common_terminals() -> dict[str, Definition]:
    """The terminals that Lark brings along as `common`."""
    files = importlib.resources.files("lark.grammars")
    text = files.joinpath("common.lark").read_text(encoding="utf-8")
    found = Statements(text).definitions
    for name, definition in found.items():
        definition.common = True
        definition.body = COMMON.get(name, definition.body)
        definition.name = f"common.{name}"
    return found


def lark_package() -> Any:
    """The package `lark`; raises UnsupportedFeature where it isn't installed."""
    try:
        import lark
    except ImportError as error:
        raise UnsupportedFeature("lark= needs the package lark, which is not installed") from error
    return lark


def _loader() -> Any:
    lark_package()
    from lark import load_grammar

    return load_grammar


def literal(token: Any) -> Any:
    """Lark's pattern of a literal: its text or regex, and flags; raises GrammarError."""
    loader = _loader()
    try:
        return loader._literal_to_pattern(token)
    except loader.GrammarError as error:
        raise GrammarError(str(error).splitlines()[0]) from None
