"""What holds of a book's rules as a graph: which yield a text, which are used, which are mutual."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from ramet.runtime.grammar.rules.book import Book
from ramet.runtime.grammar.rules.nodes import Alt, Cat, Chars, Node, Ref, Repeat

Name = TypeVar("Name", bound=Hashable)


def productive(book: Book) -> list[bool]:
    """By rule, whether there is a text of it."""

    def need(node: Node) -> int:
        match node:
            case Chars(ranges):
                return 0 if ranges else 1
            case Repeat(_, low, _):
                return 1 if low else 0
            case Cat(parts):
                return len(parts)
            case Alt() | Ref():
                return 1

    return _closure(book, need)[0]


def nullable(book: Book) -> tuple[list[bool], set[int]]:
    """By rule, whether the empty text is one of it; and all nodes of which that holds."""

    def need(node: Node) -> int:
        match node:
            case Chars():
                return 1
            case Repeat(_, low, _):
                return 1 if low else 0
            case Cat(parts):
                return len(parts)
            case Alt() | Ref():
                return 1

    return _closure(book, need)


def _closure(book: Book, need: Callable[[Node], int]) -> tuple[list[bool], set[int]]:
    """The rules and nodes that hold, where a node does once `need` of its parts do."""
    nodes = book.nodes
    missing: dict[int, int] = {}
    wholes: dict[int, list[int]] = defaultdict(list)
    mentions: dict[int, int] = {}
    ready: list[int] = []
    for node in nodes.within(book.bodies):
        missing[node] = need(nodes[node])
        if not missing[node]:
            ready.append(node)
        for part in nodes.parts(node):
            wholes[part].append(node)
        if isinstance(reference := nodes[node], Ref):
            mentions[reference.rule] = node
    rules: dict[int, list[int]] = defaultdict(list)
    for rule, body in enumerate(book.bodies):
        rules[body].append(rule)
    holds = [False] * len(book.bodies)
    found: set[int] = set()
    while ready:
        node = ready.pop()
        if node in found:
            continue
        found.add(node)
        after = list(wholes[node])
        for rule in rules[node]:
            holds[rule] = True
            if rule in mentions:
                after.append(mentions[rule])
        for whole in after:
            missing[whole] -= 1
            if missing[whole] <= 0:
                ready.append(whole)
    return holds, found


def components(start: Name, after: Callable[[Name], Iterable[Name]]) -> list[list[Name]]:
    """The strongly connected components of what is reached from `start`; a component comes after
    all others that it leads to (Tarjan 1972)."""
    index: dict[Name, int] = {}
    low: dict[Name, int] = {}
    stack: list[Name] = []
    on_stack: set[Name] = set()
    found: list[list[Name]] = []
    work = [(start, iter(after(start)))]
    index[start] = low[start] = 0
    stack.append(start)
    on_stack.add(start)
    while work:
        node, rest = work[-1]
        for child in rest:
            if child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                on_stack.add(child)
                work.append((child, iter(after(child))))
                break
            if child in on_stack:
                low[node] = min(low[node], index[child])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                component = _popped(stack, node)
                on_stack.difference_update(component)
                found.append(component)
    return found


def _popped(stack: list[Name], down_to: Name) -> list[Name]:
    at = len(stack) - 1
    while stack[at] != down_to:
        at -= 1
    component = stack[at:]
    del stack[at:]
    return component


def empty_because(book: Book, holds: Sequence[bool]) -> list[int]:
    """Rules of a book without texts that lead from the start to one that mentions itself, or to
    one that mentions nothing."""
    path = [book.start]
    while True:
        after = [rule for rule in book.nodes.rules(book.bodies[path[-1]]) if not holds[rule]]
        if not after or after[0] in path:
            return path + after[:1]
        path.append(after[0])
