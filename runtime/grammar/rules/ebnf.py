"""The front end of `ebnf=`: GBNF, as llama.cpp and xgrammar read it.

    # a comment, to the end of its line
    root   ::= "I like " animal ("," " "? animal){0,3} "."
    animal ::= [a-z]+ | 'cats'
             | "dogs"

- A text is what `root` says. Rules may stand in any order and span lines; each has one definition.
- Literals in either quotes; escapes `\\n \\r \\t \\\\ \\" \\' \\[ \\] \\- \\^`, `\\xHH`, `\\uHHHH`,
  `\\UHHHHHHHH`. Classes `[a-z_]`, `[^"\\n]`; `.` is any character.
- `|` (an option may be empty), `( )`, `?`, `*`, `+`, `{m}`, `{m,}`, `{,n}`, `{m,n}`.

Left recursion, cycles and rules that can be empty are all right. Refused, by name and place: tokens
`<...>`, look-ahead `(=...)`, regexes `/.../`, other escapes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from ramet.runtime.grammar import charset
from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.rules.assembly import source
from ramet.runtime.grammar.rules.book import Book, Places
from ramet.runtime.grammar.rules.nodes import Nodes
from ramet.runtime.grammar.source import Source

START = "root"

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
      | (?P<name>[A-Za-z_][\w.-]*)
      | (?P<define>::=)
      | (?P<literal>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<chars>\[(?:\\.|[^\]\\\n])*\])
      | (?P<count>\{\s*(?:\d+\s*(?:,\s*\d*)?|,\s*\d+)\s*\})
      | (?P<sign>\(=|[|()?*+.])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|[^\\]", re.DOTALL)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"} | {c: c for c in "\\\"'[]-^"}
_UNSUPPORTED = {
    '"': "a literal that doesn't end on its line",
    "'": "a literal that doesn't end on its line",
    "[": "a class that doesn't end on its line",
    "{": "a count must be {m}, {m,}, {,n} or {m,n}",
    "<": "tokens are not supported, only their text",
    "!": "tokens are not supported, only their text",
    "/": "regexes are not supported here, but by regex= and lark=",
}
_COUNTS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def ebnf_source(text: str) -> Source:
    """The grammar of `ebnf=text` for the mask engine.

    Raises GrammarError, with line and column, for what is malformed, undefined, defined twice or
    not supported, and for a grammar that no text satisfies or that is too large.
    """
    return source("ebnf", ebnf_book(text))


def ebnf_book(text: str) -> Book:
    """The rules of a text; raises as `ebnf_source`, save for what only all rules together show."""
    return _Reader(text).read()


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


@dataclasses.dataclass(slots=True)
class _Group:
    """An open parenthesis, or a rule: the options so far, and the parts of the last one."""

    offset: int
    options: list[int]
    parts: list[int]


class _Reader:
    def __init__(self, text: str) -> None:
        self._places = Places("ebnf", text)
        self._tokens = list(self._split(text))
        self._nodes = Nodes()
        self._numbers: dict[str, int] = {}
        """Of rules, by name, in the order they are met."""
        self._uses: list[int] = []
        """Where each rule is met first."""
        self._bodies: dict[int, int] = {}

    def read(self) -> Book:
        """All rules."""
        at = 0
        self._number(_Token("name", START, 0))
        while self._tokens[at].kind != "end":
            at = self._rule(at)
        names = list(self._numbers)
        if 0 not in self._bodies:
            self._places.fail(0, f"there is no rule {START}, with which every text starts")
        for number, name in enumerate(names):
            if number not in self._bodies:
                self._places.fail(self._uses[number], f"there is no rule {name}")
        bodies = [self._bodies[number] for number in range(len(names))]
        return Book(self._nodes, names, bodies, start=0)

    def _split(self, text: str) -> Iterator[_Token]:
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                why = _UNSUPPORTED.get(text[at], "expected a rule, a literal, a class or a sign")
                self._places.fail(at, f"{text[at : at + 10]!r}: {why}")
            assert match.lastgroup is not None
            if match.lastgroup != "space":
                yield _Token(match.lastgroup, match.group(), at)
            at = match.end()
        yield _Token("end", "", len(text))

    def _number(self, token: _Token) -> int:
        number = self._numbers.setdefault(token.text, len(self._numbers))
        if number == len(self._uses):
            self._uses.append(token.offset)
        return number

    def _rule(self, at: int) -> int:
        """Read the rule at a token; where the next one is."""
        name = self._tokens[at]
        if name.kind != "name":
            self._unexpected(name, "the name of a rule")
        if self._tokens[at + 1].kind != "define":
            self._unexpected(self._tokens[at + 1], f"::= after {name.text}")
        number = self._number(name)
        if number in self._bodies:
            self._places.fail(name.offset, f"rule {name.text} is defined twice")
        groups = [_Group(name.offset, [], [])]
        at += 2
        while not self._is_over(at):
            self._take(self._tokens[at], groups)
            at += 1
        if len(groups) > 1:
            self._places.fail(groups[-1].offset, "this parenthesis is never closed")
        self._bodies[number] = self._closed(groups.pop())
        return at

    def _is_over(self, at: int) -> bool:
        kind = self._tokens[at].kind
        return kind == "end" or (kind == "name" and self._tokens[at + 1].kind == "define")

    def _take(self, token: _Token, groups: list[_Group]) -> None:
        """Take a token of a rule's right side."""
        parts = groups[-1].parts
        match token.kind, token.text:
            case "name", _:
                parts.append(self._nodes.ref(self._number(token)))
            case "literal", _:
                text = "".join(chr(code) for code, _ in self._characters(token))
                parts.append(self._nodes.text(text))
            case "chars", _:
                parts.append(self._nodes.chars(self._class(token)))
            case "count", _:
                self._repeat(token, parts, *self._count(token))
            case _, "?" | "*" | "+":
                self._repeat(token, parts, *_COUNTS[token.text])
            case _, ".":
                parts.append(self._nodes.chars(charset.EVERYTHING))
            case _, "|":
                groups[-1].options.append(self._nodes.cat(parts))
                groups[-1].parts = []
            case _, "(":
                groups.append(_Group(token.offset, [], []))
            case _, ")" if len(groups) > 1:
                closed = self._closed(groups.pop())
                groups[-1].parts.append(closed)
            case _, ")":
                self._places.fail(token.offset, "this parenthesis was never opened")
            case _, "(=":
                self._places.fail(token.offset, "look-ahead (=...) is not supported")
            case _:
                self._unexpected(token, "a rule, a literal, a class or a sign")

    def _closed(self, group: _Group) -> int:
        return self._nodes.alt([*group.options, self._nodes.cat(group.parts)])

    def _repeat(self, token: _Token, parts: list[int], low: int, high: int | None) -> None:
        if not parts:
            self._places.fail(token.offset, f"{token.text}: there is nothing before it to repeat")
        parts.append(self._nodes.repeat(parts.pop(), low, high))

    def _count(self, token: _Token) -> tuple[int, int | None]:
        first, comma, last = token.text.strip("{}").partition(",")
        if max(len(first), len(last)) > 9:
            self._places.fail(token.offset, f"{token.text}: too large a count")
        low = int(first.strip() or 0)
        high = (int(last) if last.strip() else None) if comma else low
        if high is not None and high < low:
            self._places.fail(token.offset, f"{token.text}: the second count is the smaller one")
        return low, high

    def _characters(self, token: _Token) -> Iterator[tuple[int, bool]]:
        """The code points between the quotes or brackets, and whether each is escaped."""
        for match in _ESCAPE.finditer(token.text, 1, len(token.text) - 1):
            piece = match.group()
            offset = token.offset + match.start()
            if len(piece) == 1:
                code = ord(piece)
            elif len(piece) > 2:
                code = int(piece[2:], 16)
            elif (plain := _PLAIN.get(piece[1])) is not None:
                code = ord(plain)
            else:
                self._places.fail(offset, f"the escape {piece} is not supported")
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                self._places.fail(offset, f"{piece}: no text contains this character")
            yield code, len(piece) > 1

    def _class(self, token: _Token) -> Ranges:
        found = list(self._characters(token))
        negated = bool(found) and found[0] == (ord("^"), False)
        found = found[negated:]
        ranges: list[tuple[int, int]] = []
        at = 0
        while at < len(found):
            first = last = found[at][0]
            if at + 2 < len(found) and found[at + 1] == (ord("-"), False):
                last = found[at + 2][0]
                at += 2
            if last < first:
                shown = f"{chr(first)}-{chr(last)}"
                self._places.fail(token.offset, f"{shown}: the range ends before it begins")
            ranges.append((first, last))
            at += 1
        if not ranges and not negated:
            self._places.fail(token.offset, "an empty class, which no character belongs to")
        return charset.complement(charset.union(ranges)) if negated else charset.union(ranges)

    def _unexpected(self, token: _Token, expected: str) -> None:
        found = repr(token.text) if token.text else "the end"
        self._places.fail(token.offset, f"expected {expected}, found {found}")
