"""Lexing: a plan is exact once the mask engine's way of reading terminals loses nothing.

The engine reads with all terminals that may come next at once, takes characters as long as any of
them can go on, and then all of those that are whole. So a text is lost if and only if a terminal A
is whole, the next character can follow A, and it can also go on with some B that was allowed beside
A; then B is taken apart. Terminals of single characters never go on: this comes to an end, at worst
with a grammar over characters, where the engine's parser (Earley 1970) is exact.

What may follow what, and what is allowed beside what, is computed as if a rule that ends could
return to any of its mentions. So it takes apart more than needed at times, never less. Bytes stand
for the characters that they begin, because the engine reads bytes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable

from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.rules import graph
from ramet.runtime.grammar.rules.automaton import bits
from ramet.runtime.grammar.rules.book import Book
from ramet.runtime.grammar.rules.carving import MAX_WORDS, carved, words_within
from ramet.runtime.grammar.rules.comparing import Comparisons
from ramet.runtime.grammar.rules.nodes import Cat, Chars, Repeat
from ramet.runtime.grammar.rules.plan import (
    Call,
    Choice,
    Many,
    Plan,
    Sequence,
    Terminal,
    TooManyItems,
)
from ramet.runtime.grammar.rules.solving import fits

MAX_TERMINALS = 2000
"""With more, all are taken apart."""
MAX_STEPS = 1_000_000
"""Steps in working out what is allowed beside what, in all rounds, before all are taken apart."""
MAX_CARVED = 4
"""Times that what is left of a terminal is carved again before it is taken apart."""
MAX_CARVED_ITEMS = 500
"""Items of a plan for which carving is tried."""
MAX_CARVED_SIZE = 1000
"""Characters of a terminal that is carved."""

Refuse = Callable[[int, int], None]


def exact_plan(book: Book, refuse: Refuse) -> Plan:
    """The plan of a book that is read with the fewest steps, of those known to be exact.

    `refuse` is called as by `make_exact`. Raises TooManyItems if it is too large.
    """
    plain = Plan(book)
    make_exact(plain, refuse, carve=False)
    if not (wide := plain.num_wide()) or len(plain.items) > MAX_CARVED_ITEMS:
        return plain
    try:
        other = Plan(book, 4 * len(plain.items) - 1)
        make_exact(other, refuse, carve=True)
    except TooManyItems:
        return plain
    return other if other.num_wide() < wide else plain


def make_exact(plan: Plan, refuse: Refuse, *, carve: bool) -> None:
    """Take terminals of a plan apart until the engine reads it exactly; `carve`: where that helps
    not into what they are made of, but at the words where they conflict.

    `refuse` is called with the nodes of a terminal and of a skip that can't be told apart from
    what may follow the terminal; it raises.
    """
    budget = _Budget(MAX_STEPS)
    comparisons = Comparisons(plan.book.nodes, [plan.terminal(at).node for at in plan.terminals()])
    times_carved: dict[int, int] = {}
    while True:
        terminals = plan.terminals()
        if len(terminals) > MAX_TERMINALS or budget.left <= 0:
            _take_apart(plan, terminals, refuse)
            return
        wrong = _Rows(plan, terminals, comparisons, budget).conflicts()
        if not wrong:
            return
        for there, conflicts in wrong.items():
            node = plan.terminal(there).node
            if plan.terminal(there).is_skip:
                refuse(conflicts[0][0], node)
            times = times_carved.get(there, 0)
            made: list[int] = []
            if carve and times < MAX_CARVED and _is_token(plan, node):
                made = _carve(plan, there, comparisons, conflicts)
            if not made:
                plan.split(there)
            times_carved.update(dict.fromkeys(made, times + 1))
            comparisons.learn([plan.terminal(at).node for at in made])


def _is_token(plan: Plan, node: int) -> bool:
    """Whether a node is carved before it is taken apart: a sequence, or a run of characters."""
    nodes = plan.book.nodes
    match nodes[node]:
        case Cat():
            return True
        case Repeat(body, _, _):
            return isinstance(nodes[body], Chars)
        case _:
            return False


def _words(
    comparisons: Comparisons, node: int, conflicts: list[tuple[int, int]]
) -> set[str] | None:
    """Where the terminal can be carved; None if there are too many such places."""
    found: set[str] = set()
    other = comparisons.automaton(node)
    for first, after in conflicts:
        words = words_within(comparisons.automaton(first), other, comparisons.alphabet, after)
        if words is None or len(found) > MAX_WORDS:
            return None
        found |= words
    return {word for word in found if not any(word[:at] in found for at in range(1, len(word)))}


def _carve(
    plan: Plan, at: int, comparisons: Comparisons, conflicts: list[tuple[int, int]]
) -> list[int]:
    """Carve a terminal; the new ones, none if it can't be done."""
    nodes = plan.book.nodes
    node = plan.terminal(at).node
    words = _words(comparisons, node, conflicts)
    if not words or nodes.size(node) > MAX_CARVED_SIZE:
        return []
    after = functools.reduce(operator.or_, (after for _, after in conflicts))
    kept, rests = carved(nodes, node, words, after)
    if not all(fits(nodes, new) for new in (kept, *(rest for _, rest in rests))):
        return []
    return plan.carve(at, kept, rests)


def _take_apart(plan: Plan, terminals: Iterable[int], refuse: Refuse) -> None:
    """Leave only single characters."""
    waiting = list(terminals)
    while waiting:
        at = waiting.pop()
        item = plan.items[at]
        if isinstance(item, Terminal) and not plan.is_single(at):
            if item.is_skip:
                refuse(item.node, item.node)
            plan.split(at)
            inner = plan.items[at]
            assert not isinstance(inner, Call | Terminal)
            waiting.extend(inner.items)


class _Budget:
    def __init__(self, left: int) -> None:
        self.left = left


class _Rows:
    """Which terminals may be allowed at once, as bits of their numbers in `terminals`."""

    def __init__(
        self, plan: Plan, terminals: list[int], comparisons: Comparisons, budget: _Budget
    ) -> None:
        self._plan = plan
        self._terminals = terminals
        self._comparisons = comparisons
        self._budget = budget
        self._types = [plan.terminal(at).node for at in terminals]
        self._places: dict[int, list[int]] = {}
        for number, node in enumerate(self._types):
            self._places.setdefault(node, []).append(number)
        self._sets = self._reached()
        self._next = [self._sets[2 * at + 1] for at in terminals]

    def conflicts(self) -> dict[int, list[tuple[int, int]]]:
        """Items that a text of another terminal, followed by what may follow it, can begin: by
        such items, the nodes of the others and the bytes that may follow them."""
        beside = self._beside()
        bytes_after: dict[int, int] = {}
        found: dict[int, dict[tuple[int, int], None]] = {}
        for number, node in enumerate(self._types):
            check()
            after = self._next[number]
            if after not in bytes_after:
                bytes_after[after] = self._lead_bytes(after)
            for other, places in self._places.items():
                if not bytes_after[after] & self._comparisons.onward(node, other)[1]:
                    continue
                for place in places:
                    if beside[number] >> place & 1 and not self._is_one_skip(number, place):
                        at = self._terminals[place]
                        found.setdefault(at, {})[node, bytes_after[after]] = None
        return {at: list(nodes) for at, nodes in found.items()}

    def _is_one_skip(self, number: int, other: int) -> bool:
        return number == other and self._plan.terminal(self._terminals[number]).is_skip

    def _lead_bytes(self, numbers: int) -> int:
        mask = 0
        for number in bits(numbers):
            mask |= self._comparisons.first[self._types[number]]
        return self._comparisons.alphabet.lead_bytes(mask)

    def _beside(self) -> list[int]:
        """By number, the terminals allowed beside it."""
        start = self._sets[2 * self._plan.start]
        beside = [0] * len(self._terminals)
        alike = self._alike()
        seen = {(start, start)}
        waiting = [(start, start)]
        while waiting:
            check()
            ours, theirs = waiting.pop()
            self._budget.left -= ours.bit_count() + theirs.bit_count()
            if self._budget.left <= 0:
                return [(1 << len(self._terminals)) - 1] * len(self._terminals)
            for number in bits(theirs):
                beside[number] |= ours
            for number in bits(ours):
                beside[number] |= theirs
                both = theirs & alike[number]
                self._budget.left -= both.bit_count()
                for other in bits(both):
                    pair = self._next[number], self._next[other]
                    if pair not in seen and pair[::-1] not in seen:
                        seen.add(pair)
                        waiting.append(pair)
        return beside

    def _alike(self) -> list[int]:
        """By number, the terminals that have a text in common with it."""
        masks = {node: sum(1 << place for place in places) for node, places in self._places.items()}
        found: dict[int, int] = {}
        for node in masks:
            check()
            found[node] = 0
            for other, mask in masks.items():
                if self._comparisons.onward(node, other)[0]:
                    found[node] |= mask
        return [found[node] for node in self._types]

    def _reached(self) -> list[int]:
        """By state, the terminals that may come next; item i begins in state 2i and ends in
        2i + 1."""
        arrows = self._arrows()
        numbers = {2 * at: number for number, at in enumerate(self._terminals)}
        sets = [0] * len(arrows)
        everything = range(len(arrows))
        for component in graph.components(
            -1, lambda state: everything if state < 0 else arrows[state]
        ):
            whole = 0
            for state in component:
                if state < 0:
                    continue
                if state in numbers:
                    whole |= 1 << numbers[state]
                for after in arrows[state]:
                    whole |= sets[after]
            for state in component:
                if state >= 0:
                    sets[state] = whole
        return sets

    def _arrows(self) -> list[list[int]]:
        """By state, where the text goes on without a character."""
        arrows: list[list[int]] = [[] for _ in range(2 * len(self._plan.items))]
        for at, item in enumerate(self._plan.items):
            begin, end = 2 * at, 2 * at + 1
            match item:
                case Terminal(node):
                    if self._comparisons.is_empty(node):
                        arrows[begin].append(end)
                case Sequence(items):
                    last = begin
                    for inner in items:
                        arrows[last].append(2 * inner)
                        last = 2 * inner + 1
                    arrows[last].append(end)
                case Choice(items):
                    for inner in items:
                        arrows[begin].append(2 * inner)
                        arrows[2 * inner + 1].append(end)
                case Many((inner,), low, high):
                    arrows[begin].append(2 * inner)
                    arrows[2 * inner + 1].append(end)
                    if high != 1:
                        arrows[2 * inner + 1].append(2 * inner)
                    if low == 0:
                        arrows[begin].append(end)
                case Call(rule):
                    root = self._plan.roots[rule]
                    arrows[begin].append(2 * root)
                    arrows[2 * root + 1].append(end)
        return arrows
