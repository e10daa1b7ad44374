"""Structural tags as a grammar for the mask engine.

The engine reads a text greedily, terminal by terminal, so nothing may be ambiguous at their
borders. Nothing is, because everything is over as soon as it can be:

- Free text goes on until a trigger is complete (the first to be so; of several at once, the
  longest). That trigger is the beginning of one of its tags; what stands before it is free. An
  incomplete one at the end of the text is free text, too.
- A content that is a regex, any text, or a grammar that is one terminal, is over at the first end
  behind which it is whole.
- JSON says itself where it ends. Another `lark` or `ebnf` content is over where its grammar, whose
  last terminal takes what it can, allows nothing but the end.

A trigger inside a content is content. What would be ambiguous even so is refused: begins of which
one begins the other, unless both contents are regular, or both are JSON behind equal begins and
before equal ends.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from ramet.runtime.errors import GrammarError, UnsupportedFeature
from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.lark_text import HEADER, literal, lone_terminal, terminal
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.tag_borders import (
    document_of,
    either_schema,
    flat,
    is_open,
    is_regular,
    may_be_number,
    never,
    split_head,
    trigger_of,
)
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
    fail,
    read_tags,
)
from ramet.runtime.request import shown

ANY: Final = "/(?s:.*)/"
SOME: Final = "/(?s:.+)/"

_NUMBER: Final = "0123456789.eE+-"


class CompilePart(Protocol):
    """What turns a content into a grammar: the front end of its kind."""

    def __call__(self, kind: str, text: str, strict: bool, whitespace: str, /) -> Source:
        """The grammar of a text of a kind; raises GrammarError for a bad one."""


def tags_source(text: str, *, strict: bool, whitespace: str, compile_part: CompilePart) -> Source:
    """The grammar of structural tags, given as JSON text.

    Raises GrammarError naming the place of what is wrong, in the tags or in a content.
    """
    writer = _Writer(compile_part, strict, whitespace)
    start = writer.text(read_tags(text), "", final=True)
    lines = (f"{HEADER}start: {start or _EMPTY}", *writer.lines, "")
    return Source("\n".join(lines), tuple(writer.unenforced))


class _Writer:
    """Rules and terminals, while they are written."""

    def __init__(self, compile_part: CompilePart, strict: bool, whitespace: str) -> None:
        self.lines: list[str] = []
        self.unenforced: list[str] = []
        self._compile_part = compile_part
        self._strict = strict
        self._whitespace = whitespace
        self._names: dict[str, str] = {}
        self._sources: dict[tuple[str, str], Source] = {}
        self._numbers = itertools.count()

    def text(self, found: Format, close: str, *, final: bool) -> str:
        """What a rule has for a format and the text `close` behind it. `final`: whether the whole
        text ends there."""
        match found:
            case Const():
                return _literal(found.text + close)
            case AnyText() if not close and final:
                return f"{self._free(found.excludes, SOME)}?"
            case AnyText():
                return self._shortest(f"{self._free(found.excludes, ANY)} {literal(close)}")
            case Content():
                self._check_end(found, close)
                if (whole := self._lone(found)) is not None:
                    body = _joined(whole, _literal(close))
                    return self._terminal(body) if final and not close else self._shortest(body)
                return _joined(self._part(found), _literal(close))
            case Tag(end=""):
                return _joined(_literal(found.begin), self.text(found.content, close, final=final))
            case Tag():
                inner = self.text(found.content, found.end, final=False)
                return _joined(_literal(found.begin), inner, _literal(close))
            case Chain():
                return self._chain(found, close, final)
            case Either():
                return self._either(found.options, close, final)
            case Triggered():
                return self._triggered(found, close)
            case Separated():
                return self._separated(found, close)

    def _chain(self, chain: Chain, close: str, final: bool) -> str:
        rest = flat(chain.elements)
        if not rest:
            return _literal(close)
        written: list[str] = []
        while len(rest) > 1:
            first = rest.pop(0)
            head = ""
            if is_open(first):
                head, tail = split_head(rest[0])
                if not head:
                    fail(chain.place, "nothing says where an element ends and the next one begins")
                rest[:1] = flat([tail])
            written.append(self.text(first, head, final=False))
            if not rest:
                return _joined(*written, _literal(close))
        return _joined(*written, self.text(rest[0], close, final=final))

    def _triggered(self, found: Triggered, close: str) -> str:
        self._check_ends(found.tags)
        stops = [*found.triggers, *([close] if close else [])]
        by_trigger: dict[str, list[Format]] = {}
        for tag in found.tags:
            trigger = trigger_of(tag, stops)
            if trigger == close:
                never(tag, close)
            rest = dataclasses.replace(tag, begin=tag.begin.removeprefix(trigger))
            by_trigger.setdefault(trigger, []).append(rest)
        stop = self._terminal(" | ".join(map(literal, stops)))
        before = self._terminal(f"{ANY} {stop} {SOME}")
        heads = {one: self._head(one, stops, before) for one in (*by_trigger, close) if one}
        one_tag = self._rule(
            _joined(heads[trigger], self._either(tags, "", False))
            for trigger, tags in by_trigger.items()
        )
        rest_free = heads[close] if close else f"{self._free(stops, SOME)}?"
        first = self._either(found.tags, "", False) if found.at_least_one else ""
        if found.stop_after_first:
            only = _joined(first or one_tag, _literal(close))
            return only if first else self._rule([only, rest_free])
        return _joined(first, f"{one_tag}*", rest_free)

    def _separated(self, found: Separated, close: str) -> str:
        self._check_ends(found.tags)
        following = [found.separator] if found.separator else [tag.begin for tag in found.tags]
        if not found.at_least_one:
            following += [tag.begin for tag in found.tags]
        for text in following if close else ():
            if text.startswith(close) or close.startswith(text):
                fail(found.place, f"{shown(text)} and the end {shown(close)} may both come there")
        tag = self._rule([self._either(found.tags, "", False)])
        more = f"({_joined(_literal(found.separator), tag)})*"
        items = self._rule([tag if found.stop_after_first else _joined(tag, more)])
        return _joined(items if found.at_least_one else f"{items}?", _literal(close))

    def _either(self, options: Sequence[Format], close: str, final: bool) -> str:
        """One of several formats; those whose begins can't be told apart are read as one."""
        heads = sorted(map(split_head, options), key=lambda option: option[0])
        clusters: list[list[tuple[str, Format]]] = []
        for head, rest in heads:
            if clusters and head.startswith(clusters[-1][0][0]):
                clusters[-1].append((head, rest))
            else:
                clusters.append([(head, rest)])
        written = [self._cluster(cluster, close, final) for cluster in clusters]
        return written[0] if len(written) == 1 else self._rule(written)

    def _cluster(self, cluster: Sequence[tuple[str, Format]], close: str, final: bool) -> str:
        head, rest = cluster[0]
        if len(cluster) == 1:
            return _joined(_literal(head), self.text(rest, close, final=final))
        open_end = not final and not close
        if all(is_regular(rest) and not (open_end and is_open(rest)) for _, rest in cluster):
            bodies = [_joined(_literal(head), self._regular(rest)) for head, rest in cluster]
            body = _joined(f"({' | '.join(body or _EMPTY for body in bodies)})", _literal(close))
            return self._terminal(body) if final and not close else self._shortest(body)
        last = cluster[-1][0]
        documents = [document_of(rest) for _, rest in cluster]
        ends = {found[1] for found in documents if found is not None}
        if head == last and None not in documents and len(ends) == 1:
            (end,) = ends
            contents = [found[0] for found in documents if found is not None]
            for content in contents:
                self._check_end(content, end or close)
            return _joined(
                _literal(head), self._any_document(contents), _literal(end), _literal(close)
            )
        first, second = _name_of(rest) or shown(head), _name_of(cluster[-1][1])
        fail(second, f"can't be told apart from {first}: one begins as the other does")

    def _regular(self, found: Format) -> str:
        """A terminal's expression for a regular format that says itself where it ends."""
        match found:
            case Const():
                return literal(found.text) if found.text else ""
            case Content():
                return self._regex(found)
            case AnyText():
                return self._free(found.excludes, ANY)
            case Tag():
                body = _joined(self._regular(found.content), _literal(found.end))
                if found.end and not isinstance(found.content, Const):
                    body = self._shortest(body)
                return _joined(_literal(found.begin), body)
        raise AssertionError(found)

    def _head(self, stop: str, stops: Sequence[str], before: str) -> str:
        """Free text and the stop that ends it."""
        whole = self._terminal(f"{ANY} {literal(stop)}")
        longer = [one for one in stops if one != stop and one.endswith(stop)]
        others = [self._terminal(f"{ANY} {literal(one)}") for one in longer]
        return self._terminal(" & ".join([whole, *(f"~{one}" for one in (before, *others))]))

    def _free(self, excludes: Sequence[str], texts: str) -> str:
        """Texts in which none of some occurs."""
        if not excludes:
            return self._terminal(texts)
        stop = self._terminal(" | ".join(map(literal, excludes)))
        return self._terminal(f"{texts} & ~{self._terminal(f'{ANY} {stop} {ANY}')}")

    def _shortest(self, body: str) -> str:
        """Those texts of a terminal of which no beginning is one, too."""
        whole = self._terminal(body)
        return self._terminal(f"{whole} & ~{self._terminal(f'{whole} {SOME}')}")

    def _regex(self, found: Content) -> str:
        try:
            pattern = dialect.parse(found.text)
        except (GrammarError, UnsupportedFeature) as error:
            raise type(error)(_at_place(found, error)) from None
        known = self._names.get(key := f"regex {found.text}")
        if known is None:
            known = self._names[key] = f"N{next(self._numbers)}"
            self.lines += terminal(pattern, known, f"{known}_")
        return known

    def _lone(self, found: Content) -> str | None:
        """The terminal that a content is, if it is one."""
        if found.kind in ("json_schema", "regex"):
            return self._regex(found) if found.kind == "regex" else None
        source = self._source(found)
        known = self._names.get(key := f"lone {found.kind} {found.text}")
        if known is None:
            whole = lone_terminal(source.lark, f"G{next(self._numbers)}_")
            if whole is None:
                return None
            known = self._names[key] = whole[0]
            self.lines += whole[1]
        return known

    def _any_document(self, contents: Sequence[Content]) -> str:
        """A rule for JSON of any of several schemas. They are one grammar: what of two would begin
        alike would be read by the greedier one."""
        texts = list({content.text: content for content in contents})
        if len(texts) == 1:
            return self._part(contents[0])
        for content in contents:
            source = self._source(content)  # What is wrong with one of them has its place.
            self.unenforced += [f"{content.place}{entry}" for entry in source.unenforced]
            if '"$id"' in content.text:
                fail(content.place, "a schema with $id needs a begin of its own")
        whole = Content("json_schema", either_schema(texts), contents[0].place)
        return self._named("r", f"%lark {{\n{self._source(whole).lark}\n}}")

    def _part(self, found: Content) -> str:
        source = self._source(found)
        self.unenforced += [f"{found.place}{entry}" for entry in source.unenforced]
        return self._named("r", f"%lark {{\n{source.lark}\n}}")

    def _source(self, found: Content) -> Source:
        source = self._sources.get(key := (found.kind, found.text))
        if source is None:
            try:
                source = self._compile_part(*key, self._strict, self._whitespace)
            except (GrammarError, UnsupportedFeature) as error:
                raise type(error)(_at_place(found, error)) from None
            self._sources[key] = source
        return source

    def _rule(self, options: Iterable[str]) -> str:
        return self._named("r", " | ".join(option or _EMPTY for option in options))

    def _terminal(self, body: str) -> str:
        return self._named("N", body)

    def _named(self, kind: str, body: str) -> str:
        known = self._names.get(key := f"{kind} {body}")
        if known is None:
            known = self._names[key] = f"{kind}{next(self._numbers)}"
            self.lines.append(f"{known}: {body}")
        return known

    def _check_ends(self, tags: Sequence[Tag]) -> None:
        for tag in tags:
            if is_open(tag) or not (tag.begin or tag.end):
                fail(f"{tag.place}.end", "must not be empty: nothing else says where the tag ends")

    def _check_end(self, found: Content, close: str) -> None:
        number = found.kind == "json_schema" and close[:1] in tuple(_NUMBER)
        if number and may_be_number(found.text):
            fail(found.place, f"a number can't be told from the text {shown(close)} behind it")


_EMPTY: Final = '""'


def _literal(text: str) -> str:
    return literal(text) if text else ""


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _name_of(found: Format) -> str:
    return getattr(found, "place", "")


def _at_place(found: Content, error: Exception) -> str:
    said = str(error).removeprefix(f"{found.kind}: ").removeprefix(f"{found.kind}=")
    return f"structural_tags: {found.place}: {said}"
