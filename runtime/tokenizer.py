"""The tokenizer: text to token ids and back, exactly as transformers has it.

Used in the user's process and in the engine; never imports torch. It stands on the `tokenizers`
package and adds what programs need: text that may not become special tokens, text that continues
ids which are already there, and the bytes of each token.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from ramet.runtime.chat_template import ChatTemplate
from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.request import check_text
from ramet.runtime.tokenizer_json import (
    Document,
    TokenizerSource,
    TokenSpelling,
    without_prefix_space,
)

Piece = tuple[str, str]
"""A text and its kind: "text", in which special tokens are parsed, or "content", in which they
stay ordinary text."""


class Tokenizer:
    """A model's vocabulary and the rules around it. Thread-safe; nothing in it changes.

    `now` is the date that chat templates see; it stays fixed.
    """

    def __init__(self, source: TokenizerSource, now: datetime.datetime | None = None) -> None:
        # The vocabulary lives in the native tokenizer; here only the small rules are kept.
        rules = {key: value for key, value in source.document.items() if key != "model"}
        self._source = dataclasses.replace(source, document=rules, text="")
        self._now = now if now is not None else datetime.datetime.now()
        self._native = _build(source)
        self._spelling = TokenSpelling(rules)
        self._specials = {
            index: token.content
            for index, token in self._native.get_added_tokens_decoder().items()
            if token.special
        }
        self._ids_of_specials = {text: index for index, text in self._specials.items()}
        self._prefix = self._find_prefix()
        self._variants = {("full", True): self._native}

    @classmethod
    def from_dir(
        cls, path: str | os.PathLike[str], now: datetime.datetime | None = None
    ) -> Tokenizer:
        """The tokenizer of a Hugging Face model folder (its `tokenizer.json` and companions).

        Raises InvalidArgument for a missing folder or a malformed file, UnsupportedFeature for a
        kind of tokenizer that is not known.
        """
        return cls(TokenizerSource.from_dir(Path(path)), now)

    @classmethod
    def tiny(cls, now: datetime.datetime | None = None) -> Tokenizer:
        """The byte tokenizer of the model `tiny`, built from nothing: ids 0–255 are the bytes."""
        return cls(TokenizerSource.tiny(), now)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones included; a model may pad its own vocabulary."""
        return int(self._native.get_vocab_size(with_added_tokens=True))

    @cached_property
    def bos_id(self) -> int | None:
        """The id of the token that begins a text, or None."""
        name = self._source.names.get("bos_token")
        named = self._native.token_to_id(name) if name else None
        return named if named is not None else self._prefix[0] if self._prefix else None

    @property
    def adds_bos(self) -> bool:
        """Whether a prompt begins with BOS."""
        return bool(self._prefix)

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end a generation, from the model's generation settings."""
        name = self._source.names.get("eos_token")
        named = self._native.token_to_id(name) if name else None
        return self._source.end_ids or (() if named is None else (named,))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens, which never show in a text."""
        return frozenset(self._specials)

    @property
    def chat_template(self) -> str | None:
        """The source of the model's chat template, or None."""
        return self._source.chat_template

    def encode(self, pieces: Sequence[Piece] | str, *, continuation: bool = False) -> list[int]:
        """The ids of a text, or of pieces that are joined and tokenised together.

        A prompt gets the ids of transformers' `tokenizer(prompt)`, except that BOS stands there
        once at most and that no end token is added. With `continuation` the text goes on after
        ids that are already there: no BOS, no dummy prefix space. In pieces of kind "content"
        nothing becomes a special token, nor where one overlaps such a piece.

        Raises InvalidArgument for a lone surrogate or an unknown kind.
        """
        pieces = [(pieces, "text")] if isinstance(pieces, str) else pieces
        text, spans = _join(pieces)
        prefix = "none" if continuation else "full"
        encoding = self._variant(prefix, True).encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        special = spans and not self.special_ids.isdisjoint(ids)
        if special and self._overlaps(text, ids, encoding.offsets, spans):
            ids = self._encode_apart(text, spans, prefix)
        if continuation or ids[: len(self._prefix)] == self._prefix:
            return ids
        return self._prefix + ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text; none for a special token or an unknown id."""
        table = self._table
        return table[token_id] if 0 <= token_id < len(table) else b""

    @cached_property
    def longest_token(self) -> int:
        """The most characters that one token can stand for."""
        specials = max(map(len, self._specials.values()), default=0)
        return max(1, specials, max(map(len, self._table), default=0))

    def special_text(self, token_id: int) -> str:
        """How a special token is written; "" for any other id."""
        return self._specials.get(token_id, "")

    def special_id(self, text: str) -> int | None:
        """The id of the special token that is written so, or None."""
        return self._ids_of_specials.get(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens hidden; broken UTF-8 becomes U+FFFD.

        Like transformers' `decode`, it drops the dummy prefix space of a whole text.
        """
        parts = [part for token_id in ids if (part := self.token_bytes(token_id))]
        if parts and self._spelling.strips_first == "one":
            parts[0] = parts[0].removeprefix(b" ")
        elif parts and self._spelling.strips_first == "all":
            parts[0] = parts[0].replace(b" ", b"")
        return b"".join(parts).decode("utf-8", errors="replace")

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        """The text of a conversation under the model's chat template.

        Raises UnsupportedFeature without a template, ProgramError with the template's own words.
        """
        if self._template is None:
            raise UnsupportedFeature("the model has no chat template, so it has no roles")
        return self._template.render(messages, add_generation_prompt)

    @cached_property
    def _template(self) -> ChatTemplate | None:
        source = self._source.chat_template
        return None if source is None else ChatTemplate(source, self._source.names, self._now)

    @cached_property
    def _table(self) -> list[bytes]:
        vocabulary = self._native.get_vocab(with_added_tokens=True)
        table = [b""] * (max(vocabulary.values(), default=-1) + 1)
        for token, index in vocabulary.items():
            if index not in self._specials:
                table[index] = self._spelling.bytes_of(token)
        return table

    def _find_prefix(self) -> list[int]:
        # Only the post-processor decides; transformers ignores `add_bos_token` beside it.
        plain = self._native.encode("a", add_special_tokens=False).ids
        whole = self._native.encode("a", add_special_tokens=True).ids
        starts = range(len(whole) - len(plain) + 1)
        found = (n for n in starts if plain and whole[n : n + len(plain)] == plain)
        return list(whole[: next(found, 0)])

    def _variant(self, prefix: str, parse_special: bool) -> tokenizers.Tokenizer:
        """The native tokenizer with the dummy prefix space in "full", without it at the beginning
        ("rest": a stretch after a special token) or in "none" of the text."""
        key = (prefix, parse_special)
        if key not in self._variants:
            # Two threads may both build it; either result serves.
            self._variants[key] = self._build_variant(prefix, parse_special)
        return self._variants[key]

    def _build_variant(self, prefix: str, parse_special: bool) -> tokenizers.Tokenizer:
        rules = self._source.document
        changed = without_prefix_space(rules, only_first=prefix == "rest")
        if prefix != "full" and changed == rules:
            return self._variant("full", parse_special)
        document = json.loads(self._native.to_str())
        if prefix != "full":
            document = without_prefix_space(document, only_first=prefix == "rest")
        native = tokenizers.Tokenizer.from_str(json.dumps(document))
        native.encode_special_tokens = not parse_special
        return native

    def _overlaps(
        self,
        text: str,
        ids: list[int],
        offsets: list[tuple[int, int]],
        spans: list[tuple[int, int]],
    ) -> bool:
        """Whether a special token came out of text that lies in a content span."""
        for token_id, (start, end) in zip(ids, offsets, strict=True):
            if token_id in self._specials:
                # lstrip and rstrip tokens swallow whitespace, which may be content's.
                start += len(text[start:end]) - len(text[start:end].lstrip())
                end -= len(text[start:end]) - len(text[start:end].rstrip())
                if any(start < high and low < end for low, high in spans):
                    return True
        return False

    def _encode_apart(self, text: str, spans: list[tuple[int, int]], prefix: str) -> list[int]:
        """Split at the special tokens that lie outside content; encode the rest without any."""
        ids: list[int] = []
        position = 0
        for start, end, special in [*self._find_specials(text, spans), (len(text), len(text), -1)]:
            if position < start:
                rule = "rest" if prefix == "full" and position else prefix
                run = self._variant(rule, False).encode(
                    text[position:start], add_special_tokens=False
                )
                ids += run.ids
            if special >= 0:
                ids.append(special)
            position = end
        return ids

    def _find_specials(self, text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """(start, end, id) of special tokens outside content, by the rules of `tokenizers`: the
        leftmost first, the longest of those, whitespace swallowed where the token says so."""
        added = self._native.get_added_tokens_decoder()
        by_text = {token.content: (index, token) for index, token in added.items()}
        matches: list[tuple[int, int, int]] = []
        last = 0
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            for match in self._added_pattern.finditer(text, low, high):
                index, token = by_text[match.group()]
                start, end = match.span()
                if start < last or index not in self._specials:
                    continue
                if token.single_word and (
                    re.search(r"\w\Z", text[:start]) or re.match(r"\w", text[end:])
                ):
                    continue
                if token.lstrip:
                    start = max(len(text[:start].rstrip()), last)
                if token.rstrip:
                    end = len(text) - len(text[end:].lstrip())
                matches.append((start, end, index))
                last = end
        return matches

    @cached_property
    def _added_pattern(self) -> re.Pattern[str]:
        added = self._native.get_added_tokens_decoder().values()
        texts = sorted((token.content for token in added), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


def _build(source: TokenizerSource) -> tokenizers.Tokenizer:
    try:
        native = tokenizers.Tokenizer.from_str(source.text)
    except Exception as error:  # the package raises plain Exception
        raise InvalidArgument(f"tokenizer.json: {error}") from error
    native.no_truncation()
    native.no_padding()
    known = {token.content for token in native.get_added_tokens_decoder().values()}
    missing = [token for token in source.added if token["content"] not in known]
    for token in missing:
        native.add_tokens([_added_token(token)])
    return native


def _added_token(token: Document) -> tokenizers.AddedToken:
    flags = {key: value for key, value in token.items() if key != "content"}
    return tokenizers.AddedToken(token["content"], **flags)


def _join(pieces: Sequence[Piece]) -> tuple[str, list[tuple[int, int]]]:
    """The joined text and the (start, end) spans of content in it, adjacent ones merged."""
    spans: list[tuple[int, int]] = []
    texts: list[str] = []
    position = 0
    for text, kind in pieces:
        check_text("text", text)
        if kind not in ("text", "content"):
            raise InvalidArgument(f'kind={kind!r} of a piece: must be "text" or "content"')
        end = position + len(text)
        if kind == "content" and text:
            if spans and spans[-1][1] == position:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((position, end))
        texts.append(text)
        position = end
    return "".join(texts), spans
