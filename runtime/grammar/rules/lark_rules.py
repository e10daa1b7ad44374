"""The front end of `lark=`: grammars in the syntax of Lark, the Python parsing library.

    start: "SELECT" NAME ("," NAME)* "FROM" NAME [where]
    where: "WHERE" NAME "=" (NUMBER | ESCAPED_STRING)
    NAME: /[a-z_]+/
    %import common (NUMBER, ESCAPED_STRING, WS)
    %ignore WS

A text is what `start` says, as Lark's Earley parser with `lexer="dynamic_complete"` takes it: a
terminal may end wherever it is whole, whatever it could go on with. Regexes are those of `regex=`.

- What only shapes the tree (`?rule`, `!rule`, `_rule`, aliases, priorities) changes no text.
- Terminals may be empty, which Lark refuses.
- What `%ignore` names may stand before every terminal and at the end, each as long as it can be.
- A lazy repetition (`".*?"`) ends at the first place where it can, as in Lark; between fixed texts
  only, and of single characters only. Elsewhere it is refused.

Refused, by name and place: templates, `%declare`, `%override`, `%extend`, imports other than of
terminals of `common`, what `regex=` refuses, and `%ignore` where it can't be told from a terminal.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar import charset, dialect
from ramet.runtime.grammar.rules import graph
from ramet.runtime.grammar.rules.assembly import source
from ramet.runtime.grammar.rules.book import Book
from ramet.runtime.grammar.rules.lark_reader import Definition, Statements, literal
from ramet.runtime.grammar.rules.lazy import first_ends, has_lazy
from ramet.runtime.grammar.rules.nodes import Cat, Nodes
from ramet.runtime.grammar.rules.skipping import skips_fit_in
from ramet.runtime.grammar.source import Source

START = "start"
MAX_COUNT = 1_000_000_000
_COUNTS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def lark_source(text: str) -> Source:
    """The grammar of `lark=text` for the mask engine.

    Raises GrammarError, with line and column, for what is malformed, undefined, defined twice or
    not supported, and for a grammar that no text satisfies or that is too large;
    UnsupportedFeature without the package `lark`.
    """
    return source("lark", lark_book(text))


def lark_book(text: str) -> Book:
    """The rules of a text; raises as `lark_source`, save for what only all rules together show."""
    return Reader(text).read()


class Reader:
    """One grammar as it is read."""

    def __init__(self, text: str) -> None:
        self.statements = Statements(text)
        self.nodes = Nodes()
        self.terminals: dict[str, int] = {}
        """The nodes of all terminals that are mentioned, by the names of their definitions."""
        self._rules: dict[str, int] = {}
        self._labels: dict[int, str] = {}
        """What terminals and literals of rules are called, by their nodes."""
        self._skip: int = self.nodes.empty

    def read(self) -> Book:
        """All rules."""
        statements, nodes = self.statements, self.nodes
        defined = statements.definitions.values()
        rules = [one for one in defined if not one.name.isupper()]
        for number, definition in enumerate(rules):
            self._rules[definition.name] = number
        if START not in self._rules:
            statements.places.fail(0, f"there is no rule {START}, with which every text starts")
        self._read_terminals()
        skips = tuple(self._read(body, False) for body in statements.ignored)
        if skips:
            self._skip = nodes.ref(len(rules))
        bodies = [self._read(one.body, False, in_rule=True) for one in rules]
        names = [one.name for one in rules]
        apart = bool(skips) and not skips_fit_in(nodes, list(self._labels), skips)
        if skips:
            names.append("%ignore")
            bodies.append(nodes.repeat(nodes.alt(skips), 0, None))
        for body, node in zip(statements.ignored, skips, strict=True):
            self._labels[node] = _shown(body)
        first = nodes.ref(self._rules[START])
        return Book(
            nodes,
            [*names, ""],
            [*bodies, nodes.cat([self._skip, first])],
            len(names),
            skips if apart else (),
            len(rules) if apart else -1,
            self._labels,
        )

    def _read_terminals(self) -> None:
        """All terminals that are mentioned, each after those that it mentions."""
        statements = self.statements
        found: dict[str, Definition] = {}
        uses: dict[str, list[str]] = {}
        top = [one.body for one in statements.definitions.values() if not one.name.isupper()]
        waiting = [(body, False) for body in (*top, *statements.ignored)]
        waiting += [(one.body, False) for one in statements.definitions.values()]
        for body, common in waiting:
            for token in _names(body, "terminal"):
                definition = statements.find(token, common)
                if definition.name not in found:
                    found[definition.name] = definition
                    waiting.append((definition.body, definition.common))
        own = statements.definitions.values()
        for definition in (one for one in own if one.name.isupper()):
            for token in _names(definition.body, "nonterminal"):
                statements.fail(token, f"rule {token} can't be part of terminal {definition.name}")
        for name, definition in found.items():
            inner = _names(definition.body, "terminal")
            uses[name] = [statements.find(token, definition.common).name for token in inner]
        everything = list(found)
        for component in graph.components("", lambda name: uses[name] if name else everything):
            name = component[0]
            if len(component) > 1 or name in uses.get(name, ()):
                statements.fail(found[name].token, f"terminal {name} mentions itself")
            if name:
                self.terminals[name] = self._terminal(found[name])

    def _terminal(self, definition: Definition) -> int:
        if isinstance(definition.body, str):
            return self.nodes.pattern(dialect.parse(definition.body))
        lazy = [token for token in _literals(definition.body) if _is_lazy(token)]
        if not lazy:
            return self._read(definition.body, definition.common)
        regex = _joined(definition.body)
        if regex is None:
            return self._refuse_lazy(lazy[0])
        return self._lazy(lazy[0], regex)

    def _read(self, body: Any, common: bool, *, in_rule: bool = False) -> int:
        """The node of a tree, without recursion: `iter_subtrees` has parts before their wholes."""
        made: dict[int, int] = {}

        def inner(tree: Any) -> list[int]:
            return [made[id(child)] for child in tree.children if id(child) in made]

        for tree in body.iter_subtrees():
            if tree.data in ("terminal", "literal", "range", "nonterminal", "template_usage"):
                made[id(tree)] = self._leaf(tree, common, in_rule)
            elif tree.data == "expansions":
                made[id(tree)] = self.nodes.alt(inner(tree))
            elif tree.data == "maybe":
                made[id(tree)] = self.nodes.repeat(inner(tree)[0], 0, 1)
            elif tree.data == "expr":
                made[id(tree)] = self._repeat(inner(tree)[0], tree.children[1:])
            else:
                made[id(tree)] = self.nodes.cat(self._flat(inner(tree)))
        return made[id(body)]

    def _flat(self, parts: list[int]) -> list[int]:
        """Parts with what is skipped after them as parts of their own, because equal nodes are the
        same node wherever they stand."""
        found: list[int] = []
        for part in parts:
            node = self.nodes[part]
            if isinstance(node, Cat) and node.parts[-1:] == (self._skip,):
                found.extend(node.parts)
            else:
                found.append(part)
        return found

    def _leaf(self, tree: Any, common: bool, in_rule: bool) -> int:
        token = tree.children[0]
        match tree.data:
            case "template_usage":
                name = token.children[0]
                self.statements.fail(name, f"{name}{{…}}: templates are not supported")
            case "nonterminal":
                definition = self.statements.find(token, common)
                return self.nodes.ref(self._rules[definition.name])
            case "terminal":
                node = self.terminals[self.statements.find(token, common).name]
                shown = str(token)
            case "range":
                node = self._range(*tree.children)
                shown = "..".join(tree.children)
            case _:
                node = self.literal(token)
                shown = str(token)
        if not in_rule:
            return node
        self._labels.setdefault(node, shown)
        return self.nodes.cat([node, self._skip])

    def literal(self, token: Any) -> int:
        """The node of a literal, from its token."""
        if _is_lazy(token):
            return self._lazy(token, self._pattern(token).to_regexp())
        pattern = self._pattern(token)
        if pattern.type == "str" and not pattern.flags:
            return self.nodes.text(pattern.value)
        return self._regex(token, pattern.to_regexp())

    def _regex(self, token: Any, regex: str) -> int:
        try:
            return self.nodes.pattern(dialect.parse(regex))
        except GrammarError as error:
            self.statements.fail(token, str(error))

    def _pattern(self, token: Any) -> Any:
        try:
            return literal(token)
        except GrammarError as error:
            self.statements.fail(token, str(error))

    def _lazy(self, token: Any, regex: str) -> int:
        node = first_ends(self.nodes, self._regex(token, regex))
        return self._refuse_lazy(token) if node is None else node

    def _refuse_lazy(self, token: Any) -> NoReturn:
        self.statements.fail(
            token,
            f"{token}: a lazy repetition must be of single characters, between fixed texts",
        )

    def _range(self, first: Any, last: Any) -> int:
        low, high = (self._pattern(token).value for token in (first, last))
        if len(low) != 1 or len(high) != 1 or high < low:
            self.statements.fail(first, f"{first}..{last}: not a range of characters")
        return self.nodes.chars(charset.union([(ord(low), ord(high))]))

    def _repeat(self, body: int, operator: list[Any]) -> int:
        sign = operator[0]
        if sign != "~":
            return self.nodes.repeat(body, *_COUNTS[sign])
        low, high = (int(operator[1]), int(operator[-1]))
        if not 0 <= low <= high < MAX_COUNT:
            self.statements.fail(sign, f"~ {low}..{high}: not a count")
        return self.nodes.repeat(body, low, high)


def _names(body: Any, kind: str) -> list[Any]:
    """The tokens of the terminals or the rules that a tree mentions."""
    if isinstance(body, str):
        return []
    return [tree.children[0] for tree in body.iter_subtrees() if tree.data == kind]


def _literals(body: Any) -> list[Any]:
    return [tree.children[0] for tree in body.iter_subtrees() if tree.data == "literal"]


def _is_lazy(token: Any) -> bool:
    return token.type == "REGEXP" and has_lazy(literal(token).value)


def _joined(body: Any) -> str | None:
    """The regex of a terminal that is a sequence of literals."""
    if len(body.children) != 1:
        return None
    values = body.children[0].children
    if any(value.data != "value" or value.children[0].data != "literal" for value in values):
        return None
    return "".join(literal(value.children[0].children[0]).to_regexp() for value in values)


def _shown(body: Any) -> str:
    """A short expression as it is written."""
    return " ".join(body.scan_values(lambda value: isinstance(value, str)))
