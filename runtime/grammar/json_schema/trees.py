"""Trees of demands on an array or an object, and the alternatives that they come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

MAX_ALTERNATIVES: Final = 2_000
"""Alternatives of one array's or object's demands."""

Atom = tuple[Any, ...]
"""One demand; its first part names it (`shapes`)."""
Tree = tuple[str, tuple[Any, ...]]
"""`("atom", atom)`, or `("all" | "any", trees)`."""

ALWAYS: Final[Tree] = ("all", ())
NEVER: Final[Tree] = ("any", ())


class TooMany(Exception):
    """More alternatives than are followed."""


def atom(*parts: Any) -> Tree:
    """A tree of one demand."""
    return ("atom", parts)


def all_trees(trees: Iterable[Tree]) -> Tree:
    """Every one of some trees."""
    return _joined("all", NEVER, trees)


def any_trees(trees: Iterable[Tree]) -> Tree:
    """At least one of some trees."""
    return _joined("any", ALWAYS, trees)


def _joined(kind: str, end: Tree, trees: Iterable[Tree]) -> Tree:
    found: list[Tree] = []
    for tree in trees:
        if tree == end:
            return end
        found.extend(tree[1] if tree[0] == kind else (tree,))
    found = list(dict.fromkeys(found))
    return found[0] if len(found) == 1 else (kind, tuple(found))


def alternatives(tree: Tree, clash: Callable[[tuple[Atom, ...]], bool]) -> list[tuple[Atom, ...]]:
    """A tree as alternatives of atoms, less those that `clash` says nothing satisfies.

    Raises TooMany.
    """
    kind, parts = tree
    if kind == "atom":
        return [(parts,)]
    if kind == "any":
        found = [way for part in parts for way in alternatives(part, clash)]
        if len(found) > MAX_ALTERNATIVES:
            raise TooMany
        return list(dict.fromkeys(found))
    ways: list[tuple[Atom, ...]] = [()]
    # In the order of the text, which is the order of keys; but single demands prune first.
    for part in parts:
        options = alternatives(part, clash)
        if len(ways) * len(options) > 4 * MAX_ALTERNATIVES:
            raise TooMany
        ways = [(*way, *option) for way in ways for option in options]
        if len(options) > 1 or len(parts) == 1:
            ways = [way for way in dict.fromkeys(ways) if not clash(way)]
        if len(ways) > MAX_ALTERNATIVES:
            raise TooMany
    return [way for way in ways if not clash(way)]
