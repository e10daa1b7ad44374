"""Lazy repetitions: a regex that ends at the first place where it can.

Python's `re` has `.*?` try the fewest characters first, and Lark takes what `re` finds. Between
fixed texts that is the shortest whole text; with more around it, it depends on the order in which
`re` tries, and is no property of the text.
"""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from ramet.runtime.grammar.rules.automaton import Alphabet, Automaton
from ramet.runtime.grammar.rules.nodes import Cat, Chars, Nodes, Repeat
from ramet.runtime.grammar.rules.solving import Row, eliminated

MAX_STATES = 64
"""Of the automaton; about the length of the fixed texts."""
MAX_TIMES = 32
"""Of a lazy repetition that has a limit."""


def has_lazy(regex: str) -> bool:
    """Whether a regex has lazy repetitions; False for one that isn't well-formed."""
    if "?" not in regex:
        return False
    try:
        waiting: list[Any] = [_parser.parse(regex)]
    except (re.error, OverflowError, RecursionError):
        return False
    while waiting:
        found = waiting.pop()
        if isinstance(found, tuple) and found and found[0] is sre.MIN_REPEAT:
            return True
        if isinstance(found, (tuple, list, _parser.SubPattern)):
            waiting.extend(found)
    return False


def first_ends(nodes: Nodes, node: int) -> int | None:
    """The texts of a node that don't begin with a shorter one; None if it isn't a repetition of
    single characters between fixed texts."""
    whole = nodes[node]
    parts = [nodes[part] for part in (whole.parts if isinstance(whole, Cat) else (node,))]
    repeats = [part for part in parts if isinstance(part, Repeat)]
    if len(repeats) != 1 or not all(isinstance(part, (Chars, Repeat)) for part in parts):
        return None
    body, low, high = repeats[0].body, repeats[0].low, repeats[0].high
    if not isinstance(inner := nodes[body], Chars) or max(low, high or 0) > MAX_TIMES:
        return None
    if len(parts) == 1 and low == 0:
        return nodes.empty
    alphabet = Alphabet(part.ranges for part in (*parts, inner) if isinstance(part, Chars))
    automaton = Automaton(nodes, node, alphabet, 0)
    numbers = {0: 0}
    rows: dict[int, Row] = {}
    waiting = [0]
    while waiting:
        state = waiting.pop()
        if automaton.accepts(state):
            rows[numbers[state]] = {-1: nodes.empty}
            continue
        ways: dict[int, list[int]] = {}
        for mask, after in automaton.moves(state):
            if after not in numbers:
                numbers[after] = len(numbers)
                waiting.append(after)
            ways.setdefault(numbers[after], []).append(nodes.chars(alphabet.ranges(mask)))
        rows[numbers[state]] = {number: nodes.alt(sets) for number, sets in ways.items()}
        if len(numbers) > MAX_STATES:
            return None
    found = eliminated(nodes, dict(sorted(rows.items(), reverse=True)), at_left=False)
    return None if found is None else found[0]
