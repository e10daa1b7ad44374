"""Plan: which parts of a grammar are terminals, and which are rules over terminals.

The mask engine reads terminals with automata and takes each as long as it can be; rules it follows
exactly. A plan starts with terminals as large as they get, and is made exact by taking some apart.
"""

from __future__ import annotations

import dataclasses

from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.rules import graph
from ramet.runtime.grammar.rules.book import Book
from ramet.runtime.grammar.rules.nodes import Alt, Cat, Chars, Node, Ref, Repeat
from ramet.runtime.grammar.rules.solving import fits

MAX_ITEMS = 100_000
"""Items of a plan; one with fewer is too large already to be written (`writing.MAX_SIZE`)."""


class TooManyItems(Exception):
    """A plan has grown larger than it may."""


@dataclasses.dataclass(slots=True)
class Terminal:
    """A regular node that is read at once."""

    node: int
    is_skip: bool = False
    """Whether it is a skip, which is taken as long as it can be, and never apart."""


@dataclasses.dataclass(slots=True)
class Sequence:
    """Items one after another."""

    items: list[int]


@dataclasses.dataclass(slots=True)
class Choice:
    """Any of the items."""

    items: list[int]


@dataclasses.dataclass(slots=True)
class Many:
    """An item a number of times."""

    items: list[int]
    low: int
    high: int | None


@dataclasses.dataclass(slots=True)
class Call:
    """A rule."""

    rule: int


Item = Terminal | Sequence | Choice | Many | Call


class Plan:
    """Items by number, of all rules that the start leads to; an item is changed in its place."""

    def __init__(self, book: Book, most: int | None = None) -> None:
        """Raises TooManyItems beyond `most` (MAX_ITEMS), as does all that adds items."""
        self.book = book
        self._most = MAX_ITEMS if most is None else most
        self.items: list[Item] = []
        self.roots: dict[int, int] = {}
        """The item of each rule."""
        self._rests: dict[int, int] = {}
        """Items of what words go on with, by node: the rest of a rest is often the same."""
        known: dict[int, int] = {}
        components = graph.components(book.start, lambda rule: book.nodes.rules(book.bodies[rule]))
        for rule in sorted(rule for component in components for rule in component):
            if rule == book.skip_rule:
                self.roots[rule] = self._skips()
            else:
                self.roots[rule] = self._root(book.bodies[rule], known)
        self.start = self.roots[book.start]

    def terminals(self) -> list[int]:
        """The items that are terminals."""
        return [at for at, item in enumerate(self.items) if isinstance(item, Terminal)]

    def terminal(self, at: int) -> Terminal:
        """An item that is one."""
        item = self.items[at]
        assert isinstance(item, Terminal)
        return item

    def split(self, at: int) -> None:
        """Take a terminal apart, into what its node is made of."""
        item = self.items[at]
        assert isinstance(item, Terminal)
        nodes = self.book.nodes
        parts = [self._add(Terminal(part)) for part in nodes.parts(item.node)]
        self.items[at] = _composed(nodes[item.node], parts)

    def carve(self, at: int, kept: int, rests: list[tuple[str, int]]) -> list[int]:
        """Replace a terminal by what is kept of it, or a word and its rest; the new items."""
        nodes = self.book.nodes
        options: list[int] = []
        made: list[int] = []
        if kept != nodes.nowhere:
            options.append(self._add(Terminal(kept)))
            made.append(options[0])
        for word, rest in rests:
            begin = self._add(Terminal(nodes.text(word)))
            made.append(begin)
            if rest not in self._rests:
                self._rests[rest] = self._add(Terminal(rest))
                made.append(self._rests[rest])
            options.append(self._add(Sequence([begin, self._rests[rest]])))
        self.items[at] = Choice(options)
        return made

    def num_wide(self) -> int:
        """How many terminals are single characters of more than one: each takes the engine through
        all tokens that begin so."""
        inner = (self.book.nodes[item.node] for item in self.items if isinstance(item, Terminal))
        sets = (node.ranges for node in inner if isinstance(node, Chars))
        return sum(ranges[0][0] != ranges[-1][1] for ranges in sets if ranges)

    def is_single(self, at: int) -> bool:
        """Whether an item is a terminal of one character."""
        item = self.items[at]
        return isinstance(item, Terminal) and isinstance(self.book.nodes[item.node], Chars)

    def _add(self, item: Item) -> int:
        check()
        if len(self.items) >= self._most:
            raise TooManyItems
        self.items.append(item)
        return len(self.items) - 1

    def _known(self, node: int, known: dict[int, int]) -> int:
        """A part's item. Skips are new ones wherever they are mentioned, so that what may follow
        them there is known."""
        is_skips = self.book.nodes[node] == Ref(self.book.skip_rule)
        return self._skips() if is_skips else known[node]

    def _skips(self) -> int:
        skips = [self._add(Terminal(skip, is_skip=True)) for skip in self.book.skips]
        return self._add(Many([self._add(Choice(skips))], 0, None))

    def _root(self, body: int, known: dict[int, int]) -> int:
        nodes = self.book.nodes
        if nodes.is_regular(body):
            return self._regular(body)
        for node in nodes.open_within([body]):
            if node not in known:
                known[node] = self._open(node, known)
        return known[body]

    def _regular(self, node: int) -> int:
        """A terminal, or what a node that is too large or too deep for one is made of."""
        nodes = self.book.nodes
        if fits(nodes, node):
            return self._add(Terminal(node))
        made: dict[int, int] = {}
        for part in nodes.within([node]):
            if not fits(nodes, part):
                items = [
                    made[inner] if inner in made else self._add(Terminal(inner))
                    for inner in nodes.parts(part)
                ]
                made[part] = self._add(_composed(nodes[part], items))
        return made[node]

    def _open(self, node: int, known: dict[int, int]) -> int:
        """The item of a node that is no terminal, its parts that aren't either being known."""
        match self.book.nodes[node]:
            case Ref(rule):
                return self._add(Call(rule))
            case Cat(parts):
                return self._add(Sequence(self._sequence(parts, known)))
            case Alt(parts):
                inner = [self._known(part, known) for part in parts if part in known]
                return self._add(Choice(self._rest(parts, known) + inner))
            case Repeat(body, low, None) if low < 2 and (mixed := self._mixed(body, low, known)):
                return mixed
            case Repeat(body, low, high):
                item = self._known(body, known) if body in known else self._regular(body)
                return self._add(Many([item], low, high))
            case Chars():
                return self._add(Terminal(node))

    def _mixed(self, body: int, low: int, known: dict[int, int]) -> int | None:
        """Repetition of a choice, some options R of which are regular and others O not, as
        R* (O R*)*, so that terminals don't follow each other."""
        nodes = self.book.nodes
        options = nodes.parts(body) if isinstance(nodes[body], Alt) else ()
        regular = nodes.alt(part for part in options if part not in known)
        if regular == nodes.nowhere:
            return None
        some, any_number = nodes.repeat(regular, 1, None), nodes.repeat(regular, 0, None)
        other = self._add(Choice([self._known(part, known) for part in options if part in known]))
        turn = self._add(Sequence([other, self._regular(any_number)]))
        turns = self._add(Many([turn], 0, None))
        if low == 0:
            return self._add(Sequence([self._regular(any_number), turns]))
        first = self._add(Choice([self._regular(some), turn]))
        return self._add(Sequence([first, turns]))

    def _sequence(self, parts: tuple[int, ...], known: dict[int, int]) -> list[int]:
        items: list[int] = []
        run: list[int] = []
        for part in (*parts, -1):
            if part >= 0 and part not in known:
                run.append(part)
                continue
            if run:
                items.append(self._regular(self.book.nodes.cat(run)))
                run = []
            if part >= 0:
                items.append(self._known(part, known))
        return items

    def _rest(self, parts: tuple[int, ...], known: dict[int, int]) -> list[int]:
        """The options that are regular, as one."""
        rest = [part for part in parts if part not in known]
        return [self._regular(self.book.nodes.alt(rest))] if rest else []


def _composed(node: Node, items: list[int]) -> Item:
    """What a node is, made of the items of its parts."""
    match node:
        case Cat():
            return Sequence(items)
        case Alt():
            return Choice(items)
        case Repeat(_, low, high):
            return Many(items, low, high)
        case Chars() | Ref():
            raise ValueError("a single character can't be taken apart")
