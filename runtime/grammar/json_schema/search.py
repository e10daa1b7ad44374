"""What a `pattern` accepts: the texts in which `re.search` finds it.

JSON Schema's patterns are ECMAScript's and match anywhere. Here they mean what they mean to Python
(and so to `jsonschema`): `\\d` and `\\w` are Unicode's, `$` also stands before a last line feed.
What only ECMAScript has (`\\p{L}`, `\\u{1F600}`, `\\cA`, `(?<name>…)`) is translated. Anchors, word
boundaries, look-ahead and look-behind are exact wherever they don't stand in a repetition: what
lies to their left and right is a language, and they narrow it. Back-references, conditions, atomic
and possessive groups are not regular or not worth it, and are unsupported.
"""

from __future__ import annotations

import functools
import re
import warnings
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any as Item
from typing import Final

from ramet.runtime.errors import UnsupportedFeature
from ramet.runtime.grammar import charset
from ramet.runtime.grammar.dialect import characters
from ramet.runtime.grammar.json_schema import language
from ramet.runtime.grammar.json_schema.language import (
    EMPTY,
    EVERY,
    NOTHING,
    Chars,
    Language,
    Words,
    all_of,
    any_of,
    cat,
    not_,
    repeat,
)

MAX_POSITIONS: Final = 250_000
"""Characters that a pattern may have with all its counts written out."""
_MAX_BRANCHES: Final = 2_000
"""Ways through a pattern that are told apart because of anchors in them."""
_MAX_DEPTH: Final = 60

_CHARACTERS: Final = (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY)
_REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT)
_ASSERTIONS: Final = (sre.AT, sre.ASSERT, sre.ASSERT_NOT)
_STARTS: Final = (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING)


class BadPattern(Exception):
    """A pattern that is malformed; the message says why."""


class Hard(Exception):
    """A pattern that can't be a grammar; the message says what in it."""


Items = tuple[tuple[Item, int], ...]
"""Python's parse tree, each item with the flags that hold there."""


@functools.lru_cache(maxsize=256)
def search(pattern: str) -> Language:
    """The texts in which a pattern is found; raises BadPattern, or Hard."""
    tree = _parse(pattern)
    found = _Reader().sequence(_items(tree, int(tree.state.flags)), EVERY, EVERY, False, 0)
    return _checked(found)


@functools.lru_cache(maxsize=64)
def whole(pattern: str) -> Language:
    """The texts that match a pattern as a whole."""
    tree = _parse(pattern)
    found = _Reader().sequence(_items(tree, int(tree.state.flags)), EMPTY, EMPTY, False, 0)
    return _checked(found)


def _checked(found: Language) -> Language:
    if language.num_positions(found) > MAX_POSITIONS:
        raise Hard(f"too large: more than {MAX_POSITIONS:,} characters with its counts written out")
    return found


def _parse(pattern: str) -> Item:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _parser.parse(translated(pattern))
    except (re.error, OverflowError) as error:
        raise BadPattern(str(error)) from None
    except RecursionError:
        raise BadPattern("nested too deep") from None


def _items(tree: Item, flags: int) -> Items:
    return tuple((item, flags) for item in tree)


class _Reader:
    def __init__(self) -> None:
        self._branches = 0

    def sequence(
        self, items: Items, left: Language, right: Language, is_open: bool, depth: int
    ) -> Language:
        """The texts made of `left`, the items and `right`.

        `is_open`: more of the text, unknown here, stands before `left`.
        """
        self._branches += 1
        if self._branches > _MAX_BRANCHES or depth > _MAX_DEPTH:
            raise Hard("too many ways through it that differ by anchors")
        for at, (item, flags) in enumerate(items):
            op, value = item
            rest = items[at + 1 :]
            if not _asserts(item):
                left = cat(left, self._plain(item, flags, 0))
            elif op is sre.AT and value in _STARTS:
                left = self._start(left, flags, is_open)
            elif op in (sre.ASSERT, sre.ASSERT_NOT) and value[0] < 0:
                body = self.sequence(_items(value[1], flags), EVERY, EMPTY, False, depth + 1)
                self._need(left, is_open, int(value[1].getwidth()[1]))
                left = all_of((left, body if op is sre.ASSERT else not_(body)))
            elif op in (*_REPEATS, sre.BRANCH, sre.SUBPATTERN):
                return any_of(
                    self.sequence((*way, *rest), left, right, is_open, depth + 1)
                    for way in self._ways(op, value, flags)
                )
            else:
                tail = self.sequence(rest, EMPTY, right, True, depth + 1)
                return self._ahead(op, value, flags, left, tail, is_open, depth)
            if left == NOTHING:
                return NOTHING
        return cat(left, right)

    def _start(self, left: Language, flags: int, is_open: bool) -> Language:
        if flags & re.MULTILINE:
            raise Hard("an anchor under (?m)")
        if language.is_nullable(left):
            if is_open:
                raise Hard("an anchor after a look-ahead")
            return EMPTY
        return NOTHING

    def _need(self, left: Language, is_open: bool, width: int) -> None:
        """That as much of the text as an assertion looks back at is known."""
        if is_open and language.min_width(left) < width:
            raise Hard("a look-behind, or word boundary, after another assertion")

    def _ahead(
        self,
        op: Item,
        value: Item,
        flags: int,
        left: Language,
        tail: Language,
        is_open: bool,
        depth: int,
    ) -> Language:
        """What an assertion about the text to its right, `tail`, leaves."""
        if op is not sre.AT:
            ahead = self.sequence(_items(value[1], flags), EMPTY, EVERY, True, depth + 1)
            return cat(left, all_of((tail, ahead if op is sre.ASSERT else not_(ahead))))
        if value in (sre.AT_END, sre.AT_END_STRING):
            if flags & re.MULTILINE and value is sre.AT_END:
                raise Hard("an anchor under (?m)")
            texts = ("", "\n") if value is sre.AT_END else ("",)
            if tail == EVERY:
                return cat(left, Words(texts))
            return cat(left, all_of((tail, Words(texts))))
        self._need(left, is_open, 1)
        word = Chars(charset.category(r"\w", flags & (re.ASCII | re.UNICODE)))
        ends, starts = cat(EVERY, word), cat(word, EVERY)
        outside = all_of((left, not_(ends))), all_of((tail, not_(starts)))
        inside = all_of((left, ends)), all_of((tail, starts))
        if value is sre.AT_BOUNDARY:
            return any_of((cat(outside[0], inside[1]), cat(inside[0], outside[1])))
        return any_of((cat(outside[0], outside[1]), cat(inside[0], inside[1])))

    def _ways(self, op: Item, value: Item, flags: int) -> list[Items]:
        """The ways through a group with assertions, each as items."""
        if op is sre.BRANCH:
            return [_items(way, flags) for way in value[1]]
        if op is sre.SUBPATTERN:
            return [_items(value[3], _inner(flags, value))]
        low, high, body = value
        if high is sre.MAXREPEAT or high > 1:
            raise Hard("an anchor or look-around within a repetition")
        return [_items(body, flags)] + [()] * (low == 0)

    def _plain(self, item: Item, flags: int, depth: int) -> Language:
        """An item without assertions."""
        op, value = item
        if depth > _MAX_DEPTH:
            raise Hard("groups nested too deep")
        if op in _CHARACTERS:
            return Chars(characters(op, value, flags))
        if op is sre.BRANCH:
            return any_of(self._run(way, flags, depth) for way in value[1])
        if op is sre.SUBPATTERN:
            return self._run(value[3], _inner(flags, value), depth)
        if op in _REPEATS:
            low, high, body = value
            inner = self._run(body, flags, depth)
            return repeat(inner, int(low), None if high is sre.MAXREPEAT else int(high))
        raise Hard(f"{str(op).lower().replace('_', ' ')} is not supported")

    def _run(self, tree: Item, flags: int, depth: int) -> Language:
        return cat(*(self._plain(item, flags, depth + 1) for item in tree))


def _inner(flags: int, value: Item) -> int:
    _, added, removed, _ = value
    both = int(re.ASCII | re.UNICODE)
    return int(((flags & ~both if added & both else flags) | added) & ~removed)


def _asserts(item: Item) -> bool:
    op, value = item
    if op in _ASSERTIONS:
        return True
    if op is sre.BRANCH:
        return any(_asserts(inner) for way in value[1] for inner in way)
    if op is sre.SUBPATTERN:
        return any(map(_asserts, value[3]))
    return op in _REPEATS and any(map(_asserts, value[2]))


_FOREIGN: Final = re.compile(
    r"\\u\{(?P<point>[0-9A-Fa-f]{1,6})\}|\\c(?P<control>[A-Za-z])|\\(?P<sign>[pP])\{(?P<name>[^}]*)\}"
    r"|\(\?<(?P<group>[A-Za-z_]\w*)>|\\k<(?P<back>[A-Za-z_]\w*)>|(?P<any>\[\^\])|\\.|(?P<open>\[\^?)|\]|[^\\]",
    re.DOTALL,
)


def translated(pattern: str) -> str:
    """A pattern with what only ECMAScript has in it written as Python has it."""
    inside = False
    found = []
    for match in _FOREIGN.finditer(pattern):
        text, groups = match.group(), match.groupdict()
        if groups["open"] and not inside:
            inside = True
        elif text == "]":
            inside = False
        elif groups["point"]:
            text = f"\\U{min(int(groups['point'], 16), 0x10FFFF):08x}"
        elif groups["control"]:
            text = f"\\x{ord(groups['control']) % 32:02x}"
        elif groups["name"] is not None:
            ranges = _property(groups["sign"], groups["name"])
            inner = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
            text = inner if inside else f"[{inner}]"
        elif groups["group"] and not inside:
            text = f"(?P<{groups['group']}>"
        elif groups["back"] and not inside:
            text = f"(?P={groups['back']})"
        elif groups["any"] and not inside:
            text = r"[\s\S]"
        found.append(text)
    return "".join(found)


@functools.lru_cache(maxsize=32)
def _property(sign: str, name: str) -> charset.Ranges:
    """The characters with a property of Unicode's."""
    try:
        import regex
    except ImportError:
        raise UnsupportedFeature(
            f"pattern: \\{sign}{{{name}}} needs the package `regex`; pip install regex"
        ) from None
    try:
        compiled = regex.compile(f"\\{sign}{{{name}}}+")
    except regex.error as error:
        raise BadPattern(str(error)) from None
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    runs = ((ord(run.group()[0]), ord(run.group()[-1])) for run in compiled.finditer(text))
    return charset.union(runs)
