"""Node: one edge of the radix tree, and what is known of each of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ramet.runtime.cache.absence import Away
from ramet.runtime.cache.known import fold
from ramet.runtime.cache.origin import Origin, Run, append_run, join_runs, split_runs
from ramet.runtime.cache.page_pool import PagePool, Segment
from ramet.runtime.cache.waits import Waits

EVER = 1
"""Mark bit: the position was computed before."""
PROMPT = 2
"""Mark bit: demanded as prompt, scored choice or forced text, and charged to whoever asked."""
DECODE = 4
"""Mark bit: demanded by the sequence that sampled the token."""
MILE = 64
"""Tokens between the hashes that an edge keeps."""


class Node:
    """An edge: the tokens from its parent's path to its own end.

    Tokens `[0, computed)` are in the pool at `segments`; the rest are planned. While a step is in
    flight `segments` may run ahead of `computed`. Whoever points at a node means its *end*: a
    path that would end inside an edge splits it. `refs` counts those pointers; `held` counts the
    running sequences whose path passes through or ends here, and a held node is never evicted.
    """

    __slots__ = (
        "away",
        "children",
        "computed",
        "evictors",
        "finished",
        "held",
        "kv_children",
        "last_used",
        "marks",
        "miles",
        "origins",
        "parent",
        "path_hash",
        "private",
        "refs",
        "segments",
        "start",
        "tokens",
        "waits",
    )

    def __init__(self, parent: Node | None, tokens: list[int], start: int, private: bool) -> None:
        self.parent = parent
        self.tokens = tokens
        self.start = start
        self.private = private
        self.marks = bytearray(len(tokens))
        self.origins: list[Run] = [(len(tokens), None)] if tokens else []
        """Who first asked for each token; of one evicted, whoever asked for it since."""
        self.evictors: list[Run] = []
        """For whose sake evicted tokens were given up; may be short, and is read only of those."""
        self.computed = 0
        self.segments: list[Segment] = []
        self.children: dict[int, Node] = {}
        self.kv_children = 0
        self.refs = 0
        self.held = 0
        self.last_used = 0
        self.away: Away | None = None
        """Since when a context that stands here waits for its user."""
        self.waits: dict[int, Waits] = {}
        """Who waits to run at and below it, by lane (a priority)."""
        self.finished = False
        """Whether a program ended here: nobody is expected to go on."""
        self.path_hash: int | None = None
        """Hash of the path to this node's end (`known.fold`), computed when first asked for."""
        self.miles: list[int] = []
        """Hashes of the path to this node's start and to each `MILE` further tokens, as far as they
        were asked for."""

    def __repr__(self) -> str:
        return (
            f"Node({self.start}+{len(self.tokens)}, computed={self.computed}, "
            f"refs={self.refs}, held={self.held}, children={len(self.children)})"
        )

    @property
    def end(self) -> int:
        """Length of the path to this node's end, in tokens."""
        return self.start + len(self.tokens)

    @property
    def complete(self) -> bool:
        """Whether every token of the path to this node's end is computed."""
        node: Node | None = self
        while node is not None and not node.tokens:
            node = node.parent  # a root has no tokens
        return node is None or node.computed == len(node.tokens)

    def last_slot(self) -> int:
        """The pool slot of the last token on the path that has one, or -1."""
        node: Node | None = self
        while node is not None:
            if segments := node.segments:
                start, count = segments[-1]
                return start + count - 1
            node = node.parent
        return -1

    def path(self) -> list[Node]:
        """The nodes from the root to this one."""
        nodes = list(self.ancestors())
        nodes.reverse()
        return nodes

    def ancestors(self) -> Iterator[Node]:
        """This node, its parent, and so on to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def path_ids(self) -> list[int]:
        """All token ids from the root to this node's end."""
        ids: list[int] = []
        for node in self.path():
            ids += node.tokens
        return ids

    def missing(self) -> list[Node]:
        """The nodes of the path with tokens still to compute, topmost first."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.computed < len(node.tokens):
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def slots(self, low: int, high: int) -> list[int]:
        """Pool slots of the tokens at indices `[low, high)` of this edge."""
        out: list[int] = []
        base = 0
        for start, count in self.segments:
            first, last = max(low - base, 0), min(high - base, count)
            if first < last:
                out.extend(range(start + first, start + last))
            base += count
            if base >= high:
                break
        return out

    def hashed(self, count: int | None = None) -> int:
        """The hash of the path to this node's end, which is kept on every node of the path, or to
        the edge's token `count - 1`. Of those some are kept, as edges are evicted page by page."""
        if count is not None:
            return self._hashed_at(count)
        fresh: list[Node] = []
        above: int | None = None
        for step in self.ancestors():
            above = step.path_hash
            if above is not None:
                break
            fresh.append(step)
        assert above is not None  # a root has one from the start
        for step in reversed(fresh):
            above = step.path_hash = fold(above, step.tokens)
        return above

    def _hashed_at(self, count: int) -> int:
        assert self.parent is not None
        miles = self.miles = self.miles or [self.parent.hashed()]
        for low in range((len(miles) - 1) * MILE, count - MILE + 1, MILE):
            miles.append(fold(miles[-1], self.tokens[low : low + MILE]))
        last = count // MILE
        return fold(miles[last], self.tokens[last * MILE : count])

    def append(self, ids: Sequence[int], marks: bytes | bytearray, who: Origin | None) -> None:
        """Plan more tokens."""
        self.tokens += ids
        self.marks += marks
        append_run(self.origins, len(ids), who)
        if self.path_hash is not None:
            self.path_hash = fold(self.path_hash, ids)

    def prepend(self, upper: Node) -> None:
        """Take over all tokens of the node above, with all that is known of them but their
        slots."""
        self.origins = join_runs(upper.origins, len(upper.tokens), self.origins)
        self.evictors = join_runs(upper.evictors, len(upper.tokens), self.evictors)
        self.tokens = upper.tokens + self.tokens
        self.marks = upper.marks + self.marks
        self.computed += upper.computed
        self.start = upper.start
        self.miles = []

    def take_head(self, upper: Node) -> None:
        """Give the first tokens, as many as `upper` has, to that node, with all that is known of
        them but their slots."""
        count = len(upper.tokens)
        upper.marks, self.marks = self.marks[:count], self.marks[count:]
        upper.origins, self.origins = split_runs(self.origins, count)
        upper.evictors, self.evictors = split_runs(self.evictors, count)
        self.miles = []
        upper.computed = min(self.computed, count)
        self.computed = max(self.computed - count, 0)
        self.tokens = self.tokens[count:]
        self.start += count

    def drop_planned(self) -> None:
        """Forget the tokens that aren't computed."""
        del self.tokens[self.computed :]
        del self.marks[self.computed :]
        self.origins = split_runs(self.origins, self.computed)[0]
        self.evictors = split_runs(self.evictors, self.computed)[0]
        self.path_hash = None
        del self.miles[1 + self.computed // MILE :]

    def hold_pages(self, pool: PagePool) -> None:
        """Count this node's pages as held."""
        for segment in self.segments:
            pool.hold(pool.pages_of(segment))

    def unhold_pages(self, pool: PagePool) -> None:
        """Stop counting this node's pages as held."""
        for segment in self.segments:
            pool.unhold(pool.pages_of(segment))


def last_ids(node: Node, count: int) -> list[int]:
    """The last tokens of the path to a node, so many of them or as many as it has."""
    found: list[int] = []
    for step in node.ancestors():
        found = step.tokens[-(count - len(found)) :] + found
        if len(found) >= count:
            break
    return found
