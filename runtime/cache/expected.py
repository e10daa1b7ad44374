"""Expected: tokens that have a place in the tree before anybody knows which they are.

While a device computes a step it draws tokens that the host hasn't seen yet. The next step is
planned all the same: the edges of those who sample grow by a token each that is negative, and give
way to the real ones when the device has answered. In between nobody walks the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ramet.runtime.cache.node import DECODE, Node
from ramet.runtime.cache.origin import Origin
from ramet.runtime.cache.radix_tree import RadixTree


class Expected:
    """The tokens that one step draws."""

    def __init__(self, tree: RadixTree) -> None:
        self._tree = tree
        self._grown: list[tuple[int, Node, Origin | None]] = []

    def plan(self, paths: Iterable[tuple[int, Node, Origin | None]]) -> list[int]:
        """Let each edge that a sequence has to itself grow by a token, `-1 - index`, in place, for
        an index, a node and whose the token will be; the indices of those that did."""
        self._grown = [
            path for path in paths if path[1].refs == 1 and path[1].tokens and not path[1].children
        ]
        for index, node, _ in self._grown:
            node.tokens.append(-1 - index)
            node.marks.append(DECODE)
        return [index for index, _, _ in self._grown]

    def settle(self, tokens: Sequence[int]) -> None:
        """The tokens, one for each index, are known."""
        grown = self._grown
        self.cancel()
        others = self._tree.grow(
            [node for _, node, _ in grown],
            [tokens[index] for index, _, _ in grown],
            [who for _, _, who in grown],
        )
        assert not others, "an edge is no longer its sequence's alone"

    def cancel(self) -> None:
        """They aren't wanted: the edges are what they were, but for the slots they have."""
        for _, node, _ in self._grown:
            node.tokens.pop()
            node.marks.pop()
        self._grown = []
