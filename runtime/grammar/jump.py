"""Jump: text that a grammar forces, as the tokens that the tokenizer itself would use.

Source of the idea: jump-forward decoding (Zheng et al. 2024, SGLang).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ramet.runtime.grammar.matcher import Matcher
from ramet.runtime.grammar.vocabulary import Vocabulary

_INNER_BYTES = bytes(range(0x80, 0xC0))
"""Those of UTF-8 that only go on with a character."""
_ANY = frozenset(range(256))
CONTEXT_TOKENS = 4
"""How many of the tokens before a forced text decide with it how it is split."""


class Jumps:
    """Forced bytes to token ids, for one vocabulary.

    The ids are canonical: those that encoding the text as a whole gives, as far as its last tokens
    show. What could merge with text that isn't forced is left to be sampled.
    """

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], list[int]]) -> None:
        """`encode` gives the ids of a text that continues another."""
        self.vocabulary = vocabulary
        self._encode = encode
        self._split = functools.lru_cache(maxsize=4096)(self._split_anew)

    def tokens(self, matcher: Matcher, before: Sequence[int]) -> tuple[int, ...]:
        """The ids that follow the path that ends with the ids `before`, as far as they are forced;
        `matcher` stands behind it, and isn't changed."""
        # What is forced may be cut at any byte, and few tokens have two spellings.
        crowded = matcher.next_tokens.bit_count() > 2 * self.vocabulary.longest
        if crowded or not (forced := matcher.forced()):
            return ()
        ids = self._split(tuple(before[-CONTEXT_TOKENS:]), forced)
        after = matcher.copy()
        if not all(map(after.advance, ids)):
            return ()  # The tokenizer spells the text in another way.
        if after.finished:
            return ids
        size, keep = 0, self._settled(b"".join(map(self.vocabulary.token_bytes, ids)), after)
        for count, token in enumerate(ids):
            size += len(self.vocabulary.token_bytes(token))
            if size > keep:
                return ids[:count]
        return ids

    def split(self, before: Sequence[int], text: bytes) -> tuple[int, ...] | None:
        """The ids of a text that follows the path that ends with the ids `before`: canonical ones
        where they spell it to the byte, which others do elsewhere; None if no tokens do."""
        lead = len(text) - len(text.lstrip(_INNER_BYTES))
        ids = self.vocabulary.spell(text[:lead])
        if ids is None:
            return None
        rest: tuple[int, ...] | None = self._split((*before, *ids)[-CONTEXT_TOKENS:], text[lead:])
        if b"".join(map(self.vocabulary.token_bytes, rest or ())) != text[lead:]:
            rest = self.vocabulary.spell(text[lead:])
        return None if rest is None else ids + rest

    def _settled(self, forced: bytes, matcher: Matcher) -> int:
        """How many bytes of a forced text no token can join with what `matcher` allows next."""
        following = self.vocabulary.first_bytes(matcher.next_tokens)
        if matcher.accepting:
            following = _ANY  # Whatever comes after the whole text.
        for size in range(min(len(forced), self.vocabulary.longest), 0, -1):
            if not self.vocabulary.following(forced[-size:]).isdisjoint(following):
                return len(forced) - size
        return len(forced)

    def _split_anew(self, before: tuple[int, ...], forced: bytes) -> tuple[int, ...]:
        text = _whole_characters(forced)
        spelled = [self.vocabulary.token_bytes(token) for token in before]
        while spelled:
            if not spelled[0]:  # What stands before a special token has no say.
                spelled = spelled[1:]
                continue
            head = b"".join(spelled)
            try:
                ids = self._encode(head.decode() + text)
            except UnicodeDecodeError:
                spelled = spelled[1:]
                continue
            size = 0
            for count, token in enumerate(ids):
                if size == len(head):
                    return tuple(ids[count:])
                size += len(self.vocabulary.token_bytes(token))
            break  # The last token before it is none that the tokenizer would have ended there.
        return tuple(self._encode(text)) if text else ()


def _whole_characters(data: bytes) -> str:
    """The text of `data` without the characters that its borders split."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()
