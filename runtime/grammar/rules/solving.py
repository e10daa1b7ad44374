"""Solving: rules without recursion where it can be had.

- What doesn't mention itself is written out in what mentions it.
- Rules that mention each other only at their left ends, or only at their right ends, are equations
  of regular expressions, and solved: X = X a | b is b a* (Arden 1961).
- Else a rule's recursion at its own ends becomes repetition: E = E i E | E o | p E | b has the
  texts of p* b o* (i p* b o*)*. What recurs within, as between parentheses, stays.

The texts stay the same; parse trees aren't looked at. Repetition costs the mask engine nothing per
turn, recursion at the right end a step for each turn that is still open.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.dialect import MAX_POSITIONS
from ramet.runtime.grammar.rules import graph
from ramet.runtime.grammar.rules.book import Book
from ramet.runtime.grammar.rules.nodes import Alt, Cat, Nodes, Ref, Repeat

MAX_DEPTH = 100
"""Nesting of one terminal; what nests deeper stays rules."""
MAX_EQUATIONS = 24
"""Rules that are solved together."""
MAX_WAYS = 10_000
"""Options of one rule that are told apart by whether they recur."""
MAX_INLINED = 200
"""Mutual rules of which those used once are written out."""

Row = dict[int, int]
"""Of a rule: what stands beside each rule at its end, by that rule; -1 for what ends otherwise."""


def solved(kind: str, book: Book) -> Book:
    """The same texts with less recursion. Raises GrammarError if there are none."""
    holds = graph.productive(book)
    if not holds[book.start]:
        names = [book.names[rule] for rule in graph.empty_because(book, holds)]
        names = [name for name in names if name]
        way = " → ".join(names[-8:])
        raise GrammarError(f"{kind}: no text satisfies it: it never ends in a text ({way})")
    nodes = book.nodes
    barren = {rule: nodes.nowhere for rule, some in enumerate(holds) if not some}
    bodies = _replaced(nodes, book.bodies, barren) if barren else list(book.bodies)
    solver = _Solver(book, bodies)
    for component in graph.components(book.start, lambda rule: nodes.rules(bodies[rule])):
        solver.settle(component)
    return _unfolded(dataclasses.replace(book, bodies=bodies))


def _replaced(nodes: Nodes, roots: Sequence[int], rules: dict[int, int]) -> list[int]:
    """The roots with nodes in the place of some rules; the other rules stay."""
    return nodes.rebuilt(roots, {nodes.ref(rule): node for rule, node in rules.items()})


def _unfolded(book: Book) -> Book:
    """The same with repeated rules that are choices written out where they are repeated, so that
    their regular options are seen there: `node*` with `node: TEXT | "(" node* ")"`."""
    nodes, bodies = book.nodes, list(book.bodies)
    names, changes = list(book.names), dict[int, int]()
    added: list[tuple[int, int]] = []
    for node in nodes.open_within(bodies):
        match nodes[node]:
            case Repeat(body, low, None) if low < 2 and isinstance(rule := nodes[body], Ref):
                choice = nodes[bodies[rule.rule]]
                if isinstance(choice, Alt) and any(map(nodes.is_regular, choice.parts)):
                    changes[node] = nodes.ref(len(names))
                    names.append(f"{names[rule.rule]}{'+' if low else '*'}")
                    added.append((rule.rule, low))
            case _:
                pass
    if not changes:
        return book
    bodies = nodes.rebuilt(bodies, changes)
    bodies += [nodes.repeat(bodies[rule], low, None) for rule, low in added]
    return dataclasses.replace(book, names=names, bodies=bodies)


class _Solver:
    def __init__(self, book: Book, bodies: list[int]) -> None:
        self._nodes = book.nodes
        self._bodies = bodies
        self._skip = book.skip_rule
        self._known: dict[int, int] = {}
        """Rules that are written out, by number."""

    def settle(self, component: list[int]) -> None:
        """Solve rules that mention each other, after all others that they mention."""
        nodes, bodies = self._nodes, self._bodies
        for rule in component:
            known = {
                inner: self._known[inner]
                for inner in nodes.rules(bodies[rule])
                if inner in self._known
            }
            bodies[rule] = _replaced(nodes, [bodies[rule]], known)[0]
        inside = set(component)
        if len(component) > 1 or component[0] in nodes.rules(bodies[component[0]]):
            if not self._solve(component):
                inside = self._inline(component)
                for rule in sorted(inside):
                    bodies[rule] = _flat(nodes, rule, bodies[rule])
            if len(inside) > 1 or min(inside) in nodes.rules(bodies[min(inside)]):
                return
        for rule in inside:
            if rule != self._skip and fits(nodes, bodies[rule]):
                self._known[rule] = bodies[rule]

    def _solve(self, component: list[int]) -> bool:
        """Solve them as equations; whether they were such."""
        if len(component) > MAX_EQUATIONS:
            return False
        for at_left in (True, False):
            rows = _equations(self._nodes, component, self._bodies, at_left)
            if rows is not None and (found := eliminated(self._nodes, rows, at_left)) is not None:
                for rule, body in found.items():
                    self._bodies[rule] = body
                    if fits(self._nodes, body):
                        self._known[rule] = body
                return True
        return False

    def _inline(self, component: list[int]) -> set[int]:
        """Write out the rules that are used once and not by themselves; those that are left."""
        nodes, bodies = self._nodes, self._bodies
        left = set(component)
        if len(component) > MAX_INLINED:
            return left
        users: dict[int, Counter[int]] = {rule: Counter() for rule in component}
        for user in component:
            for rule, count in _mentions(nodes, bodies[user]).items():
                if rule in users:
                    users[rule][user] += count
        for rule in sorted(component, reverse=True):
            user = users[rule].most_common(1)[0][0]
            if users[rule].total() == 1 and user != rule and rule != self._skip:
                bodies[user] = _replaced(nodes, [bodies[user]], {rule: bodies[rule]})[0]
                left.discard(rule)
                for counts in users.values():
                    counts[user] += counts.pop(rule, 0)
        return left


def fits(nodes: Nodes, node: int) -> bool:
    """Whether a node can be one terminal."""
    return (
        nodes.is_regular(node)
        and nodes.size(node) <= MAX_POSITIONS
        and nodes.depth(node) <= MAX_DEPTH
    )


def _mentions(nodes: Nodes, body: int) -> Counter[int]:
    """How many times each rule is mentioned."""
    found = Counter[int]()
    for node in (
        body,
        *(part for whole in nodes.open_within([body]) for part in nodes.parts(whole)),
    ):
        if isinstance(reference := nodes[node], Ref):
            found[reference.rule] += 1
    return found


def _equations(
    nodes: Nodes, component: list[int], bodies: list[int], at_left: bool
) -> dict[int, Row] | None:
    """By rule, its row; None unless all mention each other at that end only."""
    inside = set(component)
    rows: dict[int, Row] = {}
    for node in nodes.open_within([bodies[rule] for rule in component]):
        row = _row(nodes, node, rows, inside, at_left)
        if row is None:
            return None
        rows[node] = row
    return {rule: dict(rows[bodies[rule]]) for rule in component}


def _row(
    nodes: Nodes, node: int, rows: dict[int, Row], inside: set[int], at_left: bool
) -> Row | None:
    """A node's row, from those of its parts; what has none mentions no rule."""

    def recurs(part: int) -> bool:
        return bool(rows.get(part, {}).keys() - {-1})

    match nodes[node]:
        case Ref(rule) if rule in inside:
            return {rule: nodes.empty}
        case Cat(parts) if any(map(recurs, parts)):
            end, *rest = parts if at_left else parts[::-1]
            if any(map(recurs, rest)):
                return None
            rest = rest if at_left else rest[::-1]
            return {
                key: nodes.cat([beside, *rest] if at_left else [*rest, beside])
                for key, beside in rows[end].items()
            }
        case Alt(parts):
            return _sum(nodes, (rows.get(part, {-1: part}) for part in parts))
        case Repeat(body, low, high) if recurs(body):
            return _sum(nodes, ({-1: nodes.empty}, rows[body])) if (low, high) == (0, 1) else None
        case _:
            return {-1: node}


def _sum(nodes: Nodes, rows: Iterable[Row]) -> Row:
    found: dict[int, list[int]] = {}
    for row in rows:
        for key, beside in row.items():
            found.setdefault(key, []).append(beside)
    return {key: nodes.alt(options) for key, options in found.items()}


def eliminated(nodes: Nodes, rows: dict[int, Row], at_left: bool) -> dict[int, int] | None:
    """The solution by Gauss's method; None if it grows too large."""

    def joined(inner: int, outer: int) -> int:
        return nodes.cat([inner, outer] if at_left else [outer, inner])

    for rule in list(rows):
        row = rows[rule]
        if (loop := row.pop(rule, None)) is not None:
            again = nodes.repeat(loop, 0, None)
            row = rows[rule] = {key: joined(beside, again) for key, beside in row.items()}
        for other in rows:
            beside = rows[other].pop(rule, None) if other != rule else None
            if beside is not None:
                added = {key: joined(inner, beside) for key, inner in row.items()}
                rows[other] = _sum(nodes, (rows[other], added))
                if any(nodes.size(node) > MAX_POSITIONS for node in rows[other].values()):
                    return None
    return {rule: row.get(-1, nodes.nowhere) for rule, row in rows.items()}


def _flat(nodes: Nodes, rule: int, body: int) -> int:
    """A rule's body with its recursion at either end as repetition."""
    itself = nodes.ref(rule)
    plain: list[int] = []
    before: list[int] = []
    after: list[int] = []
    between: list[int] = []
    for parts in _options(nodes, body, itself):
        at_left, at_right = parts[:1] == [itself], parts[-1:] == [itself]
        if parts == [itself]:
            continue
        if at_left and at_right:
            between.append(nodes.cat(parts[1:-1]))
        elif at_left:
            after.append(nodes.cat(parts[1:]))
        elif at_right:
            before.append(nodes.cat(parts[:-1]))
        else:
            plain.append(nodes.cat(parts))
    if not (before or after or between):
        return body
    if nodes.empty in between:  # E E E adds nothing to E E.
        between = [op for op in between if set(nodes.parts(op)) != {itself} and op != itself]
    unit = nodes.cat([_any(nodes, before), nodes.alt(plain), _any(nodes, after)])
    again = nodes.cat([nodes.alt(between), unit])
    return nodes.cat([unit, nodes.repeat(again, 0, None)])


def _any(nodes: Nodes, options: list[int]) -> int:
    return nodes.repeat(nodes.alt(options), 0, None)


def _options(nodes: Nodes, body: int, itself: int) -> list[list[int]]:
    """The ways through a body, apart as far as its ends must be to show `itself`."""
    found: list[list[int]] = []
    waiting = [[body]]
    while waiting:
        parts = waiting.pop()
        for at in (0, -1):
            apart = _apart(nodes, parts[at], itself, at) if parts else None
            if apart is not None:
                rest = parts[1:] if at == 0 else parts[:-1]
                waiting.extend([*way, *rest] if at == 0 else [*rest, *way] for way in apart)
                break
        else:
            found.append(parts)
        if len(found) + len(waiting) > MAX_WAYS:
            return [[body]]
    return found


def _apart(nodes: Nodes, part: int, itself: int, at: int) -> list[list[int]] | None:
    """The ways through a part at the end `at`, if `itself` may show there."""
    if part == itself or not _shows(nodes, part, itself, at):
        return None
    match nodes[part]:
        case Cat(parts):
            return [list(parts)]
        case Alt(parts):
            showing = {option for option in parts if _shows(nodes, option, itself, at)}
            others = nodes.alt(option for option in parts if option not in showing)
            rest = [[others]] if others != nodes.nowhere else []
            return [*([option] for option in sorted(showing)), *rest]
        case Repeat(body, 0, 1):
            return [[body], []]
        case _:
            return None


def _shows(nodes: Nodes, part: int, itself: int, at: int) -> bool:
    """Whether choices alone lead from a part to `itself` at its end."""
    waiting = [part]
    while waiting:
        node = waiting.pop()
        if node == itself:
            return True
        match nodes[node]:
            case Cat(parts) if parts:
                waiting.append(parts[at])
            case Alt(parts):
                waiting.extend(parts)
            case Repeat(body, 0, 1):
                waiting.append(body)
            case _:
                pass
    return False
