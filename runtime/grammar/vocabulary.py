"""Vocabulary: a tokenizer as the mask engine has it, and sets of tokens as bits.

A set of tokens is an int whose bit `i` stands for token `i`. Special tokens and end ids have no
text here: no constraint accepts them by how they are spelled.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ramet.runtime.grammar.bits import bits_of
from ramet.runtime.grammar.closing.pace import Barred
from ramet.runtime.grammar.mask_engine import mask_engine
from ramet.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance


class Vocabulary:
    """The tokens of one model. Building the engine's side takes a third of a second for 49,152
    tokens, and happens when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer, size: int | None = None) -> None:
        self.size = tokenizer.vocab_size if size is None else size
        """The model's number of tokens, which may exceed the tokenizer's."""
        self.end_ids = tokenizer.eos_ids
        """Tokens that end a text."""
        self.token_bytes = tokenizer.token_bytes
        """The bytes that a token adds to a text."""
        self._tokenizer = tokenizer
        self.beginning = functools.lru_cache(maxsize=256)(self._begin)
        """The tokens that begin a text, or that it begins."""
        self.following = functools.lru_cache(maxsize=4096)(self._follow)
        """The bytes that come right after a text in the tokens that begin with it."""
        self._first_bytes = functools.lru_cache(maxsize=1024)(self._first)
        self._silent = tokenizer.special_ids.union(tokenizer.eos_ids)

    @functools.cached_property
    def native(self) -> llguidance.LLTokenizer:
        """The mask engine's tokenizer; raises UnsupportedFeature without the package."""
        ids = range(min(self.size, self._tokenizer.vocab_size))
        table = [self._spelling(token) for token in ids]
        ends = [token for token in self.end_ids if token < len(table)]
        wrapper = _Table(table, sorted(self._silent.intersection(ids)), ends)
        native: llguidance.LLTokenizer = mask_engine().LLTokenizer(wrapper, eos_token=ends or None)
        return native

    def prepare(self) -> None:
        """Build now what would be built when it is first asked for."""
        _ = self.native, self._texts, self.longest, self._bytes_set, self.barred, self._by_text

    @functools.cached_property
    def barred(self) -> Barred:
        """The tokens that make runs of white space and digits too long."""
        return Barred(self._ordered)

    def spell(self, text: bytes) -> tuple[int, ...] | None:
        """Tokens that spell a text, always the longest that fits; None if that comes to a byte that
        no token begins with."""
        found, at = [], 0
        while at < len(text):
            size = min(self.longest, len(text) - at)
            while size and text[at : at + size] not in self._by_text:
                size -= 1
            if not size:
                return None
            found.append(self._by_text[text[at : at + size]])
            at += size
        return tuple(found)

    @functools.cached_property
    def _by_text(self) -> dict[bytes, int]:
        return dict(self._ordered)

    def masks(self, natives: list[llguidance.LLMatcher]) -> list[bytes]:
        """The masks of many matchers over it, computed on all cores."""
        import numpy as np

        masks = np.zeros((len(natives), (self._num_native + 31) // 32), dtype=np.int32)
        jobs = [(native, row) for row, native in enumerate(natives)]
        size = masks.shape[1] * masks.itemsize
        self._executor.unsafe_compute_mask_ptr(jobs, masks.ctypes.data, size, len(jobs))
        return [row.tobytes() for row in masks]

    @functools.cached_property
    def _num_native(self) -> int:
        return int(self.native.vocab_size)

    @functools.cached_property
    def _executor(self) -> Any:
        return mask_engine().LLExecutor()

    @functools.cached_property
    def end_bits(self) -> int:
        """The set of the end ids."""
        return bits_of(self.end_ids)

    def text_bits(self, mask: bytes) -> int:
        """The tokens with text of a mask that the engine computed."""
        return int.from_bytes(mask, "little") & self._texts

    def packed(self, bits: int) -> bytes:
        """A set as 32-bit words, little-endian, one bit for each token of the model."""
        return bits.to_bytes((self.size + 31) // 32 * 4, "little")

    def first_bytes(self, bits: int) -> frozenset[int]:
        """The bytes that the tokens of a set can begin with, as far as the tokens of one byte say
        it: a byte without such a token counts as one."""
        return self._first_bytes(bits & self._bytes_set)

    def _first(self, bits: int) -> frozenset[int]:
        tokens = enumerate(self._byte_tokens)
        return frozenset(byte for byte, token in tokens if token is None or bits >> token & 1)

    @functools.cached_property
    def _bytes_set(self) -> int:
        return bits_of(token for token in self._byte_tokens if token is not None)

    @functools.cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max((len(text) for text, _ in self._ordered), default=0)

    @functools.cached_property
    def _byte_tokens(self) -> list[int | None]:
        """The token of each byte; None where there is none."""
        single = {text[0]: token for text, token in self._ordered if len(text) == 1}
        return [single.get(byte) for byte in range(256)]

    def _follow(self, text: bytes) -> frozenset[int]:
        ordered, found = self._ordered, set()
        at = bisect_left(ordered, (text + b"\0", -1))
        while at < len(ordered) and ordered[at][0].startswith(text):
            byte = ordered[at][0][len(text)]
            found.add(byte)
            if byte == 255:
                break
            at = bisect_left(ordered, (text + bytes((byte + 1,)), -1))
        return frozenset(found)

    def _begin(self, text: bytes) -> int:
        ordered = self._ordered
        found = 0
        for end in range(1, len(text)):
            at = bisect_left(ordered, (text[:end], -1))
            while at < len(ordered) and ordered[at][0] == text[:end]:
                found |= 1 << ordered[at][1]
                at += 1
        at = bisect_left(ordered, (text, -1))
        while at < len(ordered) and ordered[at][0].startswith(text):
            found |= 1 << ordered[at][1]
            at += 1
        return found

    @functools.cached_property
    def _texts(self) -> int:
        return bits_of(token for _, token in self._ordered)

    @functools.cached_property
    def _ordered(self) -> list[tuple[bytes, int]]:
        """(bytes, id) of all tokens with text, ascending."""
        ids = range(min(self.size, self._tokenizer.vocab_size))
        pairs = ((self.token_bytes(token), token) for token in ids if token not in self._silent)
        return sorted(pair for pair in pairs if pair[0])

    def _spelling(self, token: int) -> bytes:
        if token in self._silent:
            return (self._tokenizer.special_text(token) or f"<special {token}>").encode()
        return self.token_bytes(token)


@functools.lru_cache(maxsize=4)
def vocabulary_of(tokenizer: Tokenizer, size: int | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer, kept: it takes a while to prepare."""
    return Vocabulary(tokenizer, size)


class _Table:
    """What the mask engine reads of a tokenizer: token ids by their bytes."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special: Sequence[int], ends: Sequence[int]):
        self.tokens = tokens
        self.special_token_ids = special
        # Without an end id the engine adds a token of its own, beyond the vocabulary.
        self.eos_token_id = ends[0] if ends else None

    def __call__(self, text: str) -> list[int]:
        """Its token ids; asked for only where text is forced, which no grammar of ours allows."""
        raise NotImplementedError
