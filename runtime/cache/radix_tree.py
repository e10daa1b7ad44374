"""RadixTree: all contexts of all live programs as paths of token ids.

The tree is the unit of planning: whoever needs a path demands its missing tokens once, whoever
comes later shares them, planned or computed. It owns the nodes, moves the pointers, and takes
from and gives back to the PagePool. The scheduler calls it; it knows no request.

Source of the idea: RadixAttention (Zheng et al. 2024, SGLang), extended to planned edges.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from ramet.runtime.cache.booking import book_decodes, book_rows, demand_edge
from ramet.runtime.cache.eviction import EvictionQueue
from ramet.runtime.cache.known import KnownPaths
from ramet.runtime.cache.node import DECODE, EVER, PROMPT, Node
from ramet.runtime.cache.origin import Origin, origin_at, paint_runs, split_runs
from ramet.runtime.cache.page_pool import PagePool, append_segment, split_segments
from ramet.runtime.cache.waits import split_waits

_COMPUTED = re.compile(b"[%b]+" % re.escape(bytes(m for m in range(256) if m & EVER)))
"""Finds, in marks, tokens that were computed before."""
_FORGET = bytes(m & ~EVER for m in range(256))


class RadixTree:
    """Token ids → nodes → pool slots, with counters of what was computed and why.

    Pointers are counted: `extend`, `fork` and `root` hand out one reference, `release` takes one.
    Every token a step computes is counted once, as one of `edge_tokens`, `decode_tokens` and
    `recomputed_tokens`.
    """

    def __init__(
        self, pool: PagePool, max_known: int = 1 << 20, queue: EvictionQueue | None = None
    ) -> None:
        self.pool = pool
        self.queue = queue or EvictionQueue()
        self.clock = 0
        self.edge_tokens = self.decode_tokens = self.recomputed_tokens = 0
        self.evicted_tokens = 0
        self.version = 0
        """Counts ends of holds, and what changes the shape of held edges: splits, merges, cuts."""
        self._known = KnownPaths(max_known)
        self._roots: dict[str | None, Node] = {}
        self._private: dict[int, Node] = {}
        self._numbers = itertools.count()

    # Pointers

    def root(self, salt: str | None = None, private: bool = False) -> Node:
        """A reference to the root of a namespace; a private root keeps nothing after its use."""
        if private:
            root = Node(None, [], 0, private=True)
            root.path_hash = hash(("private", next(self._numbers)))
            self._private[id(root)] = root
        elif salt in self._roots:
            root = self._roots[salt]
        else:
            root = self._roots[salt] = Node(None, [], 0, private=False)
            root.path_hash = hash(("salt", salt))  # what was computed elsewhere is unknown here
        root.refs += 1
        return root

    def fork(self, node: Node) -> Node:
        """One more reference to the same path."""
        node.refs += 1
        node.finished = False
        return node

    def extend(
        self,
        node: Node,
        ids: Sequence[int],
        mark: int = 0,
        running: bool = False,
        who: Origin | None = None,
    ) -> Node:
        """Move one reference from `node` to the path `node + ids`, and return that path's node.

        Known tokens are shared; new ones are planned, with `mark` (0, or DECODE on behalf of
        `who`). `running` says that the reference is a running sequence's, whose path stays held.
        """
        if not ids:
            return node
        target, done = self._walk(node, ids)
        if done < len(ids):
            target = self._grow(target, node, list(ids[done:]), mark, who)
        elif target.computed < len(target.tokens) and not target.marks[-1] & (PROMPT | DECODE):
            target.marks[-1] |= mark  # known, but the first to want it computed decides its kind
            if mark:
                end = len(target.tokens)
                target.origins = paint_runs(target.origins, end - 1, end, who)
        if target is node:  # extended in place: reference and hold move along
            return node
        target.refs += 1
        target.finished = False
        if running:
            step: Node | None = target
            while step is not None and step is not node:
                self._hold_one(step)
                step = step.parent
        node.refs -= 1
        self._tidy(node)
        return target

    def grow(
        self, nodes: Sequence[Node], tokens: Sequence[int], whose: Sequence[Origin | None]
    ) -> list[int]:
        """`extend` each path by a token that a sequence has sampled, where that sequence's own edge
        grows in place, as in most rows; the indices of the others, to which nothing is done."""
        others: list[int] = []
        known = self._known.hashes
        for index, (node, token, who) in enumerate(zip(nodes, tokens, whose, strict=True)):
            if node.refs != 1 or node.children or not node.tokens:
                others.append(index)
                continue
            mark = DECODE
            if known or node.path_hash is not None:
                path_hash = node.path_hash = hash((node.hashed(), token))
                if path_hash in known:
                    mark |= EVER
            # `Node.append` written out.
            node.tokens.append(token)
            node.marks.append(mark)
            count, last = node.origins[-1]
            if last is who:
                node.origins[-1] = (count + 1, who)
            else:
                node.origins.append((1, who))
        return others

    def release(self, node: Node, finished: bool = False) -> None:
        """Give one reference back; planned tokens that nobody else wants disappear.

        `finished` says that nobody is expected to come back to this path.
        """
        node.refs -= 1
        node.finished = finished and not node.refs
        self._tidy(node)

    def hold(self, node: Node) -> None:
        """Pin the path to `node` for a running sequence."""
        for step in node.ancestors():
            self._hold_one(step)

    def unhold(self, node: Node) -> None:
        """Unpin the path; it becomes the most recently used cache."""
        self.clock += 1
        self.version += 1
        for step in node.ancestors():
            step.held -= 1
            step.last_used = self.clock
            if not step.held:
                step.unhold_pages(self.pool)
                self.queue.offer(step)

    # Demand and computation

    def demand(self, node: Node, who: Origin | None = None) -> int:
        """Mark the path's missing tokens as wanted; returns how many nobody had asked for yet.

        Those are `who`'s from now on.
        """
        return sum(demand_edge(step, who) for step in node.missing())

    def reserve(self, node: Node, count: int) -> None:
        """Give the next `count` planned tokens of a held node their slots.

        The caller has made sure that enough pages are free.
        """
        fresh = self.pool.take(node.last_slot(), count)
        if not node.segments and node.parent is not None:
            node.parent.kv_children += 1
        for segment in fresh:
            pages = self.pool.pages_of(segment)
            if node.segments and node.segments[-1][0] + node.segments[-1][1] == segment[0]:
                inside = segment[0] % self.pool.page_size != 0
                pages = range(pages.start + inside, pages.stop)
            if node.held:
                self.pool.hold(pages)
            append_segment(node.segments, segment)

    def commit(self, ranges: Sequence[tuple[Node, int]]) -> None:
        """The next tokens of the nodes, so many of each, are computed: count each as what it was,
        and book it on its origin."""
        others = book_decodes(ranges)
        self.decode_tokens += len(ranges) - len(others)
        for node, count in others:
            again, prompt = book_rows(node, node.computed, node.computed + count)
            self.recomputed_tokens += again
            self.edge_tokens += prompt
            self.decode_tokens += count - again - prompt
            node.computed += count

    def cancel_reserved(self, node: Node) -> None:
        """Give back the slots of a step that failed."""
        self._cut(node, node.computed)

    # Memory

    def evict(self, pages: int, who: Origin | None = None) -> bool:
        """Give up cached tokens until `pages` pages are free; False if that can't be reached.

        `who` needs the pages.
        """
        while self.pool.free_pages < pages:
            node = self.queue.pop()
            if node is None:
                return False
            size = self.pool.page_size
            while node.segments and self.pool.free_pages < pages:
                start, count = node.segments[-1]
                drop = min(count, (start + count - 1) % size + 1)
                self.evicted_tokens += drop
                low = node.computed - drop
                node.evictors = paint_runs(node.evictors, low, node.computed, who)
                self._cut(node, low)
            self.queue.offer(node)
            self._tidy(node)
        return True

    def evictor(self, node: Node, index: int) -> Origin | None:
        """For whose sake the node's token at `index` was evicted; None if that isn't known."""
        who = origin_at(node.evictors, index)
        if who is None and node.parent is not None:
            who = self._known.evictor(node.hashed(index + 1))
        return who

    def flush(self) -> None:
        """Give up everything that nothing runs on, and forget what was ever computed."""
        self.evict(self.pool.num_pages + 1)
        self._known.clear()
        for node in self.nodes():
            rest = node.marks[node.computed :]
            node.marks[node.computed :] = rest.translate(_FORGET)

    def nodes(self) -> Iterator[Node]:
        """All nodes, roots included, parents first."""
        stack = [*self._roots.values(), *self._private.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    # Inside

    def _walk(self, node: Node, ids: Sequence[int]) -> tuple[Node, int]:
        """Follow `ids` below `node` as far as they are known, splitting where they end."""
        done = 0
        ids = ids if isinstance(ids, list) else list(ids)  # slices are compared
        while done < len(ids):
            child = node.children.get(ids[done])
            if child is None:
                break
            same = 1
            top = min(len(child.tokens), len(ids) - done)
            tokens = child.tokens
            if tokens[:top] == ids[done : done + top]:
                same = top
            else:
                while tokens[same] == ids[done + same]:
                    same += 1
            if same < len(tokens):
                child = self._split(child, same)
            child.finished = False
            node = child
            done += same
        return node, done

    def _grow(
        self, node: Node, pointer: Node, ids: list[int], mark: int, who: Origin | None
    ) -> Node:
        """Plan new tokens below `node`: in place if nobody else points at its end, else a child."""
        marks = bytearray([mark]) * len(ids)
        if self._known:
            known = self._known.lookup(node.hashed(), ids)
            marks[:known] = bytes([mark | EVER]) * known
        others = node.refs - (node is pointer)
        if node.tokens and not node.children and not others:
            node.append(ids, marks, who)
            return node
        child = Node(node, ids, node.end, node.private)
        child.marks = marks
        child.origins = [(len(ids), who)]
        child.last_used = self.clock
        node.children[ids[0]] = child
        return child

    def _split(self, node: Node, count: int) -> Node:
        """Cut an edge; the new upper node takes the first tokens, `node` keeps its pointers."""
        parent = node.parent
        assert parent is not None
        self.version += node.held > 0
        upper = Node(parent, node.tokens[:count], node.start, node.private)
        node.take_head(upper)
        upper.held = node.held
        upper.last_used = node.last_used
        upper.children[node.tokens[0]] = node
        parent.children[upper.tokens[0]] = upper
        upper.segments, rest = split_segments(node.segments, count)
        if rest:
            upper.kv_children = 1
            page = rest[0][0] // self.pool.page_size
            if node.held and upper.last_slot() // self.pool.page_size == page:
                self.pool.hold(range(page, page + 1))
        node.parent = upper
        node.segments = rest
        split_waits(upper, node)
        if not rest:
            self.queue.offer(upper)
        return upper

    def _hold_one(self, node: Node) -> None:
        node.held += 1
        if node.held == 1:
            node.hold_pages(self.pool)

    def _tidy(self, node: Node) -> None:
        """Remove what nobody wants: planned tails, empty leaves, chains of single children."""
        while not (node.refs or node.held or node.children):
            if node.private:
                self._cut(node, 0)
            parent = node.parent
            if parent is None:
                self._drop_root(node)
                return
            if node.computed < len(node.tokens):
                self._remember_tail(node)
            if node.computed:
                if node.computed < len(node.tokens):
                    node.drop_planned()
                self.queue.offer(node)  # with nobody pointing at it, it goes sooner
                break
            del parent.children[node.tokens[0]]  # its own link stays, for whoever remembers it
            node = parent
        if node.refs == 0 and node.parent is not None and len(node.children) == 1:
            self._merge(node)

    def _drop_root(self, root: Node) -> None:
        if self._private.pop(id(root), None) is None:
            self._roots = {salt: kept for salt, kept in self._roots.items() if kept is not root}

    def _merge(self, node: Node) -> None:
        """Join a node that nobody points at with its only child, which keeps its pointers."""
        self.version += node.held > 0
        (child,) = node.children.values()
        parent = node.parent
        assert parent is not None
        if node.segments and child.segments:
            page = child.segments[0][0] // self.pool.page_size
            if node.held and node.last_slot() // self.pool.page_size == page:
                self.pool.unhold(range(page, page + 1))
        segments = list(node.segments)
        for segment in child.segments:
            append_segment(segments, segment)
        child.segments = segments
        child.prepend(node)
        child.last_used = max(child.last_used, node.last_used)
        child.parent = parent
        parent.children[child.tokens[0]] = child
        node.segments = []
        node.children = {}
        node.waits = {}
        node.parent = child  # whoever still remembers the node finds what has become of it
        self.queue.offer(child)

    def _cut(self, node: Node, computed: int) -> None:
        """Give back the slots of the tokens from index `computed` on."""
        if not node.segments:
            return
        if node.held:
            self.version += 1
            node.unhold_pages(self.pool)
        node.segments, dropped = split_segments(node.segments, computed)
        if node.held:
            node.hold_pages(self.pool)
        for segment in reversed(dropped):
            self.pool.give_back(segment)
        node.computed = min(node.computed, computed)
        if not node.segments and node.parent is not None:
            node.parent.kv_children -= 1
            self.queue.offer(node.parent)  # it may be a candidate only now

    def _remember_tail(self, node: Node) -> None:
        """Note which of a leaf's planned tokens had been computed, before they are dropped."""
        at = node.computed
        known = _COMPUTED.match(node.marks, at)
        if known is not None and not node.private:
            evictors = split_runs(node.evictors, at)[1]
            self._known.remember(node.hashed(at), node.tokens[at : known.end()], evictors)
