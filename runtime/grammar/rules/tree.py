"""Parse trees of finished texts under `lark=`, as Lark's Earley parser makes them."""

from __future__ import annotations

import functools
import re
import time
from typing import Any

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.lark_reader import lark_package
from ramet.runtime.grammar.rules.lark_rules import Reader
from ramet.runtime.grammar.rules.nonempty import nonempty_regex

MAX_WAYS = 20_000
"""Sequences that the rules may be written out to, which Lark does for optional parts."""
SECONDS = 10.0
"""Time for one text."""


def parse_tree(text: str, document: str, *, seconds: float = SECONDS) -> Any:
    """The `lark.Tree` of a document under the grammar `text`.

    Terminals are tried as long as `re` finds them first, and as `lark=` has them, ending anywhere,
    if that leads nowhere. Where a text has several trees Lark chooses one, always the same. A
    terminal that is empty leaves nothing in the tree.

    Raises GrammarError for a grammar that `lark=` refuses, for a document that is not one of its
    texts, with line and column, and if it takes longer than `seconds`.
    """
    lark = lark_package()
    deadline = time.monotonic() + seconds
    failure: Exception | None = None
    for lexer in ("dynamic", "dynamic_complete"):
        parser = _parser(text, lexer)
        try:
            return _parsed(parser, document, deadline)
        except lark.UnexpectedCharacters as error:
            failure = GrammarError(
                f"lark: the text doesn't satisfy the grammar: line {error.line}, column "
                f"{error.column}: {document[error.pos_in_stream :][:20]!r} can't follow"
            )
        except (lark.UnexpectedInput, lark.exceptions.ParseError):
            failure = GrammarError(
                "lark: the text doesn't satisfy the grammar: it ends before it is a whole one"
            )
        except RecursionError:
            failure = GrammarError("lark: the text is nested too deep for a tree")
    assert failure is not None
    raise failure from None


def _parsed(parser: Any, document: str, deadline: float) -> Any:
    """One parse. What is ignored at the end is left out where Lark, by a defect, finds two ways to
    ignore it."""
    earley = parser.parser.parser
    match = earley.term_matcher

    def timed(terminal: Any, stream: Any, index: int = 0) -> Any:
        if time.monotonic() > deadline:
            raise GrammarError(
                f"lark: no tree in the time allowed, of {len(document):,} characters"
            )
        return match(terminal, stream, index)

    ignored = "|".join(
        one.pattern.to_regexp() for one in parser.terminals if one.name in parser.ignore_tokens
    )
    earley.term_matcher = timed
    end = len(document)
    while True:
        try:
            return parser.parse(document[:end])
        except RuntimeError as error:
            if "multiple start symbol" not in str(error):
                raise
        end -= 1
        while end and not re.fullmatch(f"(?:{ignored})*", document[end:]):
            end -= 1
        if not end:
            return parser.parse("")


def _parser(text: str, lexer: str) -> Any:
    """A parser of a grammar's."""
    lark = lark_package()
    grammar = _grammar(text)
    try:
        return lark.Lark(grammar, parser="earley", lexer=lexer)
    except lark.exceptions.LarkError as error:
        raise GrammarError(
            f"lark: no trees under this grammar: {str(error).splitlines()[0]}"
        ) from None


@functools.lru_cache(maxsize=8)
def _grammar(text: str) -> Any:
    """Lark's form of a grammar, in which a terminal that can be empty is optional instead."""
    from lark.grammar import Terminal
    from lark.load_grammar import GrammarBuilder

    reader = Reader(text)
    reader.read()
    builder = GrammarBuilder()
    builder.load_grammar(text)
    grammar = builder.build()
    regexes = {name: nonempty_regex(reader.nodes, node) for name, node in reader.terminals.items()}
    changed = {name: regex for name, regex in regexes.items() if regex is not None}

    def replaced(value: Any) -> Any:
        inner = value.children[0]
        if isinstance(inner, Terminal) and inner.name in changed:
            return _optional(value)
        if getattr(inner, "data", None) == "literal" and inner.children[0].type == "REGEXP":
            regex = nonempty_regex(reader.nodes, reader.literal(inner.children[0]))
            if regex is not None:
                return _optional(_value(regex))
        return value

    total = 0
    for _, _, body, _ in grammar.rule_defs:
        for tree in list(body.iter_subtrees()):
            tree.children = [
                replaced(child) if getattr(child, "data", None) == "value" else child
                for child in tree.children
            ]
        total += _ways(body)
    if total > MAX_WAYS:
        raise GrammarError(
            f"lark: no trees under this grammar: its optional parts make {total:,} different "
            f"sequences, and at most {MAX_WAYS:,} are supported"
        )
    for at, (name, (_, priority)) in enumerate(grammar.term_defs):
        if name in changed:
            body = _tree("expansions", _tree("expansion", _value(changed[name])))
            grammar.term_defs[at] = name, (body, priority)
    return grammar


def _tree(data: str, *children: Any) -> Any:
    return lark_package().Tree(data, list(children))


def _value(regex: str) -> Any:
    from lark.lexer import PatternRE

    return _tree("value", _tree("pattern", PatternRE(regex)))


def _optional(value: Any) -> Any:
    return _tree("expr", value, lark_package().Token("OP", "?"))


def _ways(body: Any) -> int:
    """How many sequences Lark writes a rule out to; at most a bit more than MAX_WAYS."""
    ways: dict[int, int] = {}
    added = 0
    for tree in body.iter_subtrees():
        inner = [ways[id(child)] for child in tree.children if id(child) in ways]
        match tree.data:
            case "expansions":
                found = sum(inner)
            case "expansion" | "alias":
                found = 1
                for count in inner:
                    found = min(found * count, MAX_WAYS + 1)
            case "maybe":
                found = inner[0] + 1
            case "expr" if tree.children[1] == "?":
                found = inner[0] + 1
            case "expr" if tree.children[1] == "~":
                low, high = int(tree.children[2]), int(tree.children[-1])
                found = min(MAX_WAYS + 1, sum(inner[0] ** k for k in range(low, min(high, 50) + 1)))
                added += high
            case "expr":
                added += inner[0]
                found = 1
            case _:
                found = 1
        ways[id(tree)] = min(found, MAX_WAYS + 1)
    return ways[id(body)] + added
