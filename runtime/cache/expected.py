"""Expected: tokens that have a place in the tree before anybody knows which they are.

While a device computes a step it draws tokens that the host hasn't seen yet. The next step is
planned all the same: the edges of those who sample grow by a token each that is negative, and
`settle` writes the tokens there when the device has answered. In between nobody walks the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ramet.runtime.cache.known import KnownPaths
from ramet.runtime.cache.node import DECODE, EVER, Node
from ramet.runtime.cache.origin import Origin, append_run, split_runs


class Expected:
    """The tokens that one step draws."""

    def __init__(self, known: KnownPaths) -> None:
        self._known = known
        self._grown: list[tuple[int, Node, int | None]] = []
        """(index, node, its path's hash before)."""

    def plan(self, paths: Iterable[tuple[int, Node, Origin | None]]) -> list[int]:
        """Let each edge that a sequence has to itself grow by a token, `-1 - index`, in place, for
        an index, a node and whose the token is; the indices of those that did."""
        for index, node, who in paths:
            if node.refs == 1 and not node.children and node.tokens:
                self._grown.append((index, node, node.path_hash))
                node.path_hash = None
                node.tokens.append(-1 - index)
                node.marks.append(DECODE)
                append_run(node.origins, 1, who)
        return [index for index, _, _ in self._grown]

    def settle(self, tokens: Sequence[int]) -> None:
        """The tokens, one for each index, are known."""
        known = self._known.hashes
        for index, node, before in self._grown:
            token = node.tokens[-1] = tokens[index]
            if known or before is not None:
                above = before if before is not None else node.hashed(len(node.tokens) - 1)
                node.path_hash = hash((above, token))
                if node.path_hash in known:
                    node.marks[-1] |= EVER
        self._grown = []

    def cancel(self) -> None:
        """They aren't wanted: the edges are what they were."""
        for _, node, before in self._grown:
            node.tokens.pop()
            node.marks.pop()
            node.origins = split_runs(node.origins, len(node.tokens))[0]
            node.path_hash = before
        self._grown = []
