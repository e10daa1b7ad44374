"""Budget: sees to it that a JSON document is whole before its tokens run out.

It keeps a *certificate*: a text that closes the document from where it is, which the matcher takes
and whose tokens fit what is left. A token that was sampled is taken only if such a certificate
follows it; otherwise the certificate's own next token is. As long as a bound, kept from byte to
byte, says that any closing fits (no token is less than a byte), no certificate is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ramet.runtime.grammar.closing.closer import Closer, closing_for
from ramet.runtime.grammar.closing.walk import Walk
from ramet.runtime.grammar.matcher import Matcher

Split = Callable[[Sequence[int], bytes], tuple[int, ...] | None]
"""The tokens of a text behind a path that ends with some ids; they spell exactly that text. None
where the model has none."""
Ids = tuple[int, ...]


class Budget:
    """The certificate of one document."""

    def __init__(
        self,
        closer: Closer,
        matcher: Matcher,
        token_bytes: Callable[[int], bytes],
        split: Split,
        held: Ids,
    ) -> None:
        """A document at its beginning; `matcher`, over bytes, is the budget's own, and `held` the
        tokens of a document that it takes."""
        self._walk = closer.walk()
        self._matcher = matcher
        self._token_bytes = token_bytes
        self._split = split
        self._unread = b""
        """What the matcher has not been given yet: it is needed only where bounds don't do."""
        self._held: Ids | None = held
        """The certificate's tokens, if one was needed at this place."""
        self.lost = False
        """Whether no certificate was found, so that the document goes on without one."""

    def choose(self, token: int, before: Sequence[int], left: int) -> int | None:
        """The token to take where `token` was sampled: that one, or the certificate's, or None
        where the document is whole and has to end here.

        `before` are the last ids of the path, `left` how many tokens may still come, this one
        included. The choice is taken.
        """
        if self.follows((token,), before, left):
            return token
        certificate = self._held
        if certificate is None:
            certificate = self._certificate(self._walk, b"", before)
        if certificate is None:
            self.lost = True
            return token
        if not certificate:
            return None
        self._go(self._token_bytes(certificate[0]), certificate[1:])
        return certificate[0]

    def follows(self, tokens: Sequence[int], before: Sequence[int], left: int) -> bool:
        """Whether a certificate follows all of `tokens`; if so, they are taken."""
        data = b"".join(map(self._token_bytes, tokens))
        if self.lost or not data:
            return True
        held, size = self._held, len(tokens)
        if held is not None and held[:size] == tuple(tokens):
            self._go(data, held[size:])
            return True
        walk = self._walk.copy()
        walk.push(data)
        certificate = None
        bound = walk.bound
        if bound is None or bound > left - size:
            certificate = self._certificate(walk, data, (*before, *tokens))
            if certificate is None or len(certificate) > left - size:
                return False
        self._walk, self._held = walk, certificate
        self._unread += data
        return True

    def _go(self, data: bytes, held: Ids) -> None:
        self._walk.push(data)
        self._unread += data
        self._held = held

    def _certificate(self, walk: Walk, data: bytes, before: Sequence[int]) -> Ids | None:
        """The tokens that close the document after `data` more; None where none are found."""
        matcher = self._matcher
        for byte in self._unread:
            if not matcher.advance(byte):
                return None
        self._unread = b""
        taken = 0
        for byte in data:
            if not matcher.advance(byte):
                break
            taken += 1
        text = closing_for(walk, matcher) if taken == len(data) else None
        matcher.rollback(taken)
        return None if text is None else self._split(before, text)
