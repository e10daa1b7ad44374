"""The pieces of a text under structural tags: free text, and what its regions hold, in order.

It reads as `structural_tags` writes, so a text that the grammar takes has one reading.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.lark_text import lark_text
from ramet.runtime.grammar.mask_engine import mask_engine
from ramet.runtime.grammar.structural_tags import CompilePart
from ramet.runtime.grammar.tag_borders import first_stop, flat, is_open, split_head
from ramet.runtime.grammar.tag_formats import (
    AnyText,
    Chain,
    Const,
    Content,
    Either,
    Format,
    Separated,
    Tag,
    Triggered,
    read_tags,
)

if TYPE_CHECKING:
    import llguidance

ReadContent = Callable[[Content, str], Any]
"""Gives the value of a content's text."""


class Tagged(NamedTuple):
    """What one region holds."""

    begin: str
    """The text that it begins with; "" for a content that stands in no tag."""
    value: Any
    """Its content: a value, the text of what has no other value, or a list of pieces."""


class Mismatch(ValueError):
    """A text is none that the tags allow."""


class TagReader:
    """Reads the texts of one set of structural tags."""

    def __init__(
        self, tags: str, *, strict: bool, whitespace: str, compile_part: CompilePart
    ) -> None:
        """The arguments are those of `tags_source`, and raise the same."""
        self._format = read_tags(tags)
        self._strict = strict
        self._whitespace = whitespace
        self._compile_part = compile_part
        self._matchers: dict[tuple[str, str], llguidance.LLMatcher] = {}

    def pieces(self, text: str, read: ReadContent) -> list[str | Tagged]:
        """The pieces of a whole text; no text among them is empty. Raises Mismatch for another
        one."""
        pieces, end = _Reading(text, read, self.matcher).read(self._format, 0, "", final=True)
        if end != len(text):
            raise Mismatch(f"{text[end : end + 20]!r} at position {end} can't follow")
        return _merged(pieces)

    def matcher(self, found: Content) -> llguidance.LLMatcher:
        """A matcher over bytes at the beginning of a content."""
        key = (found.kind, found.text)
        if key not in self._matchers:
            if found.kind == "regex":
                lark = lark_text(dialect.parse(found.text))
            else:
                lark = self._compile_part(*key, self._strict, self._whitespace).lark
            package = mask_engine()
            self._matchers[key] = package.LLMatcher(
                _byte_tokenizer(), package.LLMatcher.grammar_from_lark(lark), log_level=0
            )
        return self._matchers[key].deep_copy()


class _Reading:
    """One text while it is read."""

    def __init__(
        self, text: str, read: ReadContent, matcher: Callable[[Content], llguidance.LLMatcher]
    ) -> None:
        self._text = text
        self._read_content = read
        self._matcher = matcher

    def read(
        self, found: Format, start: int, close: str, *, final: bool
    ) -> tuple[list[str | Tagged], int]:
        """What a format has from `start` on, and where the text `close` behind it begins."""
        match found:
            case Const():
                self._expect(found.text, start)
                return [found.text], start + len(found.text)
            case AnyText():
                end = self._find(close, start)
                if (stop := first_stop(self._text[start:end], found.excludes)) is not None:
                    raise Mismatch(f"{stop[1]!r} behind position {start} is excluded")
                return [self._text[start:end]], end
            case Content():
                end = self._content_end(found, start, close, final)
                return [Tagged("", self._read_content(found, self._text[start:end]))], end
            case Tag():
                return self._tag(found, start, close, final)
            case Chain():
                return self._chain(found, start, close, final)
            case Either():
                return self._either(found.options, start, close, final)
            case Triggered():
                return self._triggered(found, start, close)
            case Separated():
                return self._separated(found, start)

    def _tag(self, tag: Tag, start: int, close: str, final: bool) -> tuple[list[str | Tagged], int]:
        self._expect(tag.begin, start)
        inner, end = self.read(
            tag.content, start + len(tag.begin), tag.end or close, final=final and not tag.end
        )
        self._expect(tag.end, end)
        value: Any = _merged(inner)
        match tag.content:
            case Const() | AnyText():
                value = "".join(value)
            case Content():
                value = value[0].value
        return [Tagged(tag.begin, value)], end + len(tag.end)

    def _chain(
        self, chain: Chain, start: int, close: str, final: bool
    ) -> tuple[list[str | Tagged], int]:
        elements = flat(chain.elements)
        pieces: list[str | Tagged] = []
        for index, element in enumerate(elements):
            last = index == len(elements) - 1
            after = close if last else split_head(elements[index + 1])[0]
            after = after if last or is_open(element) else ""
            found, start = self.read(element, start, after, final=final and last)
            pieces += found
        return pieces, start

    def _either(
        self, options: Iterable[Format], start: int, close: str, final: bool
    ) -> tuple[list[str | Tagged], int]:
        best: tuple[list[str | Tagged], int] | None = None
        reason = Mismatch(f"none of the formats begins at position {start}")
        for option in options:
            if not self._text.startswith(split_head(option)[0], start):
                continue
            try:
                found = self.read(option, start, close, final=final)
                self._expect(close, found[1])
            except Mismatch as error:
                reason = error
                continue
            fits = not (final and not close) or found[1] == len(self._text)
            if fits and (best is None or found[1] < best[1]):
                best = found
        if best is None:
            raise reason
        return best

    def _triggered(
        self, found: Triggered, start: int, close: str
    ) -> tuple[list[str | Tagged], int]:
        pieces: list[str | Tagged] = []
        if found.at_least_one:
            pieces, start = self._either(found.tags, start, "", False)
            if found.stop_after_first:
                return pieces, start
        stops = [*found.triggers, *([close] if close else [])]
        while True:
            at, stop = first_stop(self._text, stops, start) or (len(self._text), close)
            pieces.append(self._text[start:at])
            if stop == close:
                self._expect(close, at)
                return pieces, at
            tagged, start = self._either(found.tags, at, "", False)
            pieces += tagged
            if found.stop_after_first:
                return pieces, start

    def _separated(self, found: Separated, start: int) -> tuple[list[str | Tagged], int]:
        pieces: list[str | Tagged] = []
        begins = tuple(tag.begin for tag in found.tags)
        while not pieces or not found.stop_after_first:
            separator = found.separator if pieces else ""
            here = start + len(separator)
            more = self._text.startswith(separator, start)
            if not more or not self._text.startswith(begins, here):
                break
            if self._is_end(here) and not separator and (pieces or not found.at_least_one):
                break
            tagged, end = self._either(found.tags, here, "", False)
            pieces += [separator, *tagged]
            if end == start:  # Nothing can't be counted.
                break
            start = end
        if found.at_least_one and not pieces:
            raise Mismatch(f"a tag is missing at position {start}")
        return pieces, start

    def _content_end(self, found: Content, start: int, close: str, final: bool) -> int:
        matcher = self._matcher(found)
        end = start
        while True:
            here = self._text.startswith(close, end) if close or not final else self._is_end(end)
            if here and matcher.is_accepting():
                return end
            data = self._text[end : end + 1].encode()
            if not data or matcher.try_consume_tokens(list(data)) < len(data):
                raise Mismatch(f"the {found.kind} at position {start} has no end")
            end += 1

    def _is_end(self, at: int) -> bool:
        return at == len(self._text)

    def _find(self, close: str, start: int) -> int:
        end = self._text.find(close, start) if close else len(self._text)
        if end < 0:
            raise Mismatch(f"{close!r} is missing behind position {start}")
        return end

    def _expect(self, text: str, at: int) -> None:
        if not self._text.startswith(text, at):
            raise Mismatch(f"{text!r} is missing at position {at}")


def _merged(pieces: Sequence[str | Tagged]) -> list[str | Tagged]:
    """Pieces without empty texts, and without two texts in a row."""
    found: list[str | Tagged] = []
    for piece in pieces:
        if isinstance(piece, Tagged):
            found.append(piece)
        elif piece and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece:
            found.append(piece)
    return found


@functools.lru_cache(maxsize=1)
def _byte_tokenizer() -> llguidance.LLTokenizer:
    tokenizer: llguidance.LLTokenizer = mask_engine().LLTokenizer("byte")
    return tokenizer
