"""Writing: a plan in llguidance's Lark syntax.

Whatever contains something else has a name of its own, so that the text is never nested, and what
is mentioned often stands in it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Parts

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.lark_text import (
    HEADER,
    INLINE_RANGES,
    character_set,
    count,
    is_single,
    point,
)
from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.rules.nodes import HUGE, Alt, Cat, Chars, Nodes, Repeat
from ramet.runtime.grammar.rules.plan import Call, Choice, Many, Plan, Sequence, Terminal

MAX_NESTING = 1000
"""Rules within rules; the engine's own compiler recurses on them."""
MAX_SIZE = 50_000
"""Terminals that the rules may mention with all their counts written out."""


def written(kind: str, plan: Plan) -> str:
    """The grammar's text; raises GrammarError for one that is too large or nested too deep."""
    order = _ordered(kind, plan)
    _check_size(kind, plan, order)
    terminals = _Terminals(plan.book.nodes)
    roots = (plan.items[at] for at in order)
    terminals.write(item.node for item in roots if isinstance(item, Terminal))
    lines = [f"{HEADER}start: {_operand(plan, terminals, plan.start)}"]
    for at in reversed(order):
        if not isinstance(plan.items[at], Terminal | Call):
            lines.append(f"r{at}: {_body(plan, terminals, at)}")
    lines.extend(terminals.lines())
    return "\n".join([*lines, ""])


def _inner(plan: Plan, at: int) -> Parts[int]:
    match plan.items[at]:
        case Terminal():
            return ()
        case Call(rule):
            return (plan.roots[rule],)
        case item:
            return item.items


def _ordered(kind: str, plan: Plan) -> list[int]:
    """The items that are used, each after those that it is made of, recursion aside."""
    order: list[int] = []
    seen = {plan.start}
    path = [(plan.start, iter(_inner(plan, plan.start)))]
    while path:
        check()
        at, rest = path[-1]
        child = next((inner for inner in rest if inner not in seen), None)
        if child is None:
            order.append(at)
            path.pop()
            continue
        seen.add(child)
        path.append((child, iter(_inner(plan, child))))
        if len(path) > MAX_NESTING:
            raise GrammarError(f"{kind}: rules are nested deeper than {MAX_NESTING}")
    return order


def _check_size(kind: str, plan: Plan, order: list[int]) -> None:
    sizes = dict.fromkeys(order, 1)
    whole = 0
    for at in order:
        item = plan.items[at]
        if isinstance(item, Many):
            times = item.low + 1 if item.high is None else item.high
            sizes[at] = min(HUGE, sizes[item.items[0]] * max(1, times))
            whole += sizes[at]
        elif not isinstance(item, Terminal | Call):
            sizes[at] = min(HUGE, sum(sizes[inner] for inner in item.items))
            whole += len(item.items)
    if whole > MAX_SIZE:
        raise GrammarError(
            f"{kind}: too large: with its counts written out it has {whole:,} parts, and at most "
            f"{MAX_SIZE:,} are supported"
        )


def _operand(plan: Plan, terminals: _Terminals, at: int) -> str:
    match plan.items[at]:
        case Terminal(node):
            return terminals.name(node)
        case Call(rule):
            return _operand(plan, terminals, plan.roots[rule])
        case _:
            return f"r{at}"


def _body(plan: Plan, terminals: _Terminals, at: int) -> str:
    match plan.items[at]:
        case Sequence(items):
            return " ".join(_operand(plan, terminals, inner) for inner in items) or '""'
        case Choice(items):
            return " | ".join(_operand(plan, terminals, inner) for inner in items)
        case Many((inner,), low, high):
            return _operand(plan, terminals, inner) + count(low, high)
        case item:
            raise ValueError(f"{item} has no rule of its own")


class _Terminals:
    """Regular nodes as terminals, each once."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._texts: dict[int, str] = {}
        self._used: dict[int, None] = {}

    def write(self, roots: Iterable[int]) -> None:
        """Work out the texts of the roots and all their parts."""
        for node in self._nodes.within(roots):
            self._texts[node] = self._text(node)

    def name(self, node: int) -> str:
        """A node's name, which makes it one of the lines."""
        self._used[node] = None
        return f"T{node}"

    def lines(self) -> list[str]:
        """The definitions of all that were named."""
        found: list[str] = []
        for node in self._used:
            found.append(f"T{node}: {self._texts[node]}")
        return found

    def _text(self, node: int) -> str:
        check()
        match self._nodes[node]:
            case Chars(ranges):
                return character_set(ranges)
            case Cat(parts):
                return self._cat(parts)
            case Alt(parts):
                return " | ".join(map(self._part, parts))
            case Repeat(body, low, high):
                return self._part(body) + count(low, high)
            case item:
                raise ValueError(f"{item} in a terminal")

    def _part(self, node: int) -> str:
        inner = self._nodes[node]
        if isinstance(inner, Chars) and len(inner.ranges) <= INLINE_RANGES:
            return self._texts[node]
        if isinstance(inner, Cat) and " " not in self._texts[node]:
            return self._texts[node]
        return self.name(node)

    def _cat(self, parts: Parts[int]) -> str:
        found: list[str] = []
        literal = ""
        for part in parts:
            node = self._nodes[part]
            if isinstance(node, Chars) and is_single(node.ranges):
                literal += point(node.ranges[0][0])
                continue
            if literal:
                found.append(f"/{literal}/")
                literal = ""
            found.append(self._part(part))
        if literal:
            found.append(f"/{literal}/")
        return " ".join(found) or '""'
