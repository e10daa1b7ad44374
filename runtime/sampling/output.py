"""What a sequence's tokens say: incremental text, stop matching and the cut, in bytes."""

from __future__ import annotations

import codecs
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection
from itertools import accumulate
from typing import NamedTuple

from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.stop_pattern import StopSearch, compile_stop
from ramet.runtime.sampling.stops import StopSet


class Step(NamedTuple):
    """What one token added."""

    text: str
    """Text that is now final and safe to send; often the token's, "" while some is held back."""
    finished: str | None
    """None, or why the sequence ended: `stop`, `eos`, `length`, or `finish`'s reason."""
    matched: str | int | None
    """The stop text or the token id that ended it; None for `length` and others."""


class _Match(NamedTuple):
    """A stop within the text: the bytes from `start` to `end`."""

    start: int
    end: int
    stop: str


NOTHING = Step("", None, None)
"""What most tokens add where nobody reads along."""


class TextOutput:
    """The generated text of one sequence, from its first token to its end.

    Rules:
    - Stops match the UTF-8 bytes of the generated text, across token borders; tokens without text
      (special ones) don't interrupt a match. The first token that completes a match ends the
      sequence. Of several matches it completes, the one that begins earliest wins, and of those
      that begin together the longest.
    - A match counts only if the token completing it has an index of at least `min_new_tokens`, and
      so do end ids and stop ids: that many tokens come before the one that ends the call.
      Earlier matches stay in the text and are never matched again.
    - `stop_regex` is searched for in the same way: the first character that completes a match of
      it ends the sequence, where `$` is true.
    - Text is held back only while the tail is a proper prefix of a stop, or of a match of
      `stop_regex`, or an incomplete UTF-8 character. Joined deltas equal the final text, which is
      `bytes.decode(errors="replace")` of the bytes before the cut.
    - Under a constraint, stops and stop ids count only where it allows the cut (`may_cut`), and it
      may end the text by itself (`push(token, complete=True)`), whatever `min_new_tokens` says.
    - `include_stop` keeps the stop text, and the token of a `stop_token_ids` end. The model's own
      end id never stays.

    Each token costs time linear in its own bytes.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        params: SamplingParams,
        end_ids: Collection[int],
        *,
        limit: int | None = None,
        stops: StopSet | None = None,
        may_cut: Callable[[bytes | bytearray, int], bool] | None = None,
        streams: bool = True,
    ) -> None:
        """An empty output.

        `limit` lowers `max_new_tokens` (needed where that is "context"); `stops` is a prepared
        `StopSet(params.stop)`, to be shared between samples; `may_cut(data, cut)` says whether the
        text may be cut to `data[:cut]`, and that the constraint it speaks for also decides which
        tokens may be sampled, so that `banned` is empty. Without `streams` nobody reads the text
        before the end, so that it is decoded only then.
        """
        self._token_bytes = token_bytes
        self._stops = StopSet(params.stop) if stops is None else stops
        self._end_ids = frozenset() if params.ignore_eos else frozenset(end_ids)
        self._stop_ids = frozenset(params.stop_token_ids)
        self._include_stop = params.include_stop
        self._min_tokens = params.min_new_tokens
        self._may_cut = may_cut
        self._streams = streams
        constrained = may_cut is not None or self._min_tokens > 0
        regex = params.stop_regex
        self._search = None if regex is None else self._searching(regex)
        searched = self._stops or regex is not None
        self._quick = not (streams or searched or self._stop_ids or constrained)
        """Whether tokens that end nothing are only put on `ids` until the end."""
        self.ids: list[int] = []
        """All tokens pushed."""
        self._stop_regex = regex
        self._texts = sorted((s.encode() for s in params.stop), key=len, reverse=True)
        own = None if isinstance(params.max_new_tokens, str) else params.max_new_tokens
        self._limit = min((x for x in (own, limit) if x is not None), default=None)
        self._data = bytearray()
        self._ends: list[int] = []  # _ends[i]: bytes of text after token i
        self._state = 0
        self._sent = 0  # bytes given to the decoder
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self.finished: str | None = None
        """None, or the reason of the end."""
        self.matched: str | int | None = None
        """The stop text or token id that ended it."""
        self.kept = 0
        """After the end: how many leading tokens stay as they are in the context."""
        self.tail = ""
        """After the end: text that follows them, the begun part of a cut token, to be tokenised
        anew as a continuation; mostly "". The ids of the context then decode to `text`."""

    @property
    def text(self) -> str:
        """The text sent so far; after the end, the value."""
        return "".join(self._parts)

    @property
    def num_tokens(self) -> int:
        """Tokens pushed so far that carry output: an end id, or a stop id not kept, isn't one."""
        return len(self.ids) if self._quick else len(self._ends)

    @property
    def quiet_tokens(self) -> int:
        """Up to how many tokens may be put on `ids` as they come, instead of pushed, as long as
        they are no end ids of the model: nothing would come of them."""
        if not self._quick:
            return 0
        return sys.maxsize if self._limit is None else self._limit - 1

    @property
    def may_end(self) -> bool:
        """Whether `min_new_tokens` have been pushed, so that the next one may end the sequence."""
        return len(self._ends) >= self._min_tokens

    @property
    def banned(self) -> tuple[int, ...]:
        """Token ids that may not be sampled next: those that would end the call too early."""
        if self.may_end or self._may_cut is not None:
            return ()
        return tuple(sorted(self._end_ids | self._stop_ids))

    def push(self, token: int, complete: bool = False) -> Step:
        """Take the next sampled token; `complete`: the text is over with it.

        Raises RuntimeError after the end.
        """
        if self._quick and not complete and token not in self._end_ids:
            self.ids.append(token)
            return NOTHING if len(self.ids) != self._limit else self.finish()
        if self.finished is not None:
            raise RuntimeError(f"token {token} after the end ({self.finished})")
        self._catch_up()
        self.ids.append(token)
        may_end = self.may_end
        if may_end and token in self._end_ids:
            return self._end("eos", token, len(self._data))
        stop_id = may_end and token in self._stop_ids
        if stop_id and not self._include_stop and self._cuts(len(self._data)):
            return self._end("stop", token, len(self._data))
        match = self._append(self._token_bytes(token))
        if match is not None and may_end:
            return self._end("stop", match.stop, match.end if self._include_stop else match.start)
        if complete:
            return self._end("stop", None, len(self._data))
        if stop_id and self._include_stop and self._cuts(len(self._data)):
            return self._end("stop", token, len(self._data))
        if self._limit is not None and len(self._ends) >= self._limit:
            return self._end("length", None, len(self._data))
        if not self._streams:
            return NOTHING
        held = self._stops.held(self._state)
        if self._search is not None:
            held = max(held, self._search.held)
        return Step(self._send(len(self._data) - held, held > 0), None, None)

    def finish(self, reason: str = "length") -> Step:
        """End the sequence from outside, releasing what was held back."""
        if self.finished is not None:
            raise RuntimeError(f"already ended ({self.finished})")
        self._catch_up()
        return self._end(reason, None, len(self._data))

    def _catch_up(self) -> None:
        """Add the bytes of the tokens that were only put on `ids`; no more are."""
        if self._quick:
            self._quick = False
            pieces = [self._token_bytes(token) for token in self.ids]
            self._data += b"".join(pieces)
            self._ends += accumulate(map(len, pieces))

    def _append(self, data: bytes) -> _Match | None:
        """Add a token's bytes; the winner among the matches that end in them."""
        position = len(self._data)
        self._data += data
        self._ends.append(len(self._data))
        found: list[_Match] = []
        if self._stops:
            state = self._state
            for byte in data:
                state = self._stops.advance(state, byte)
                position += 1
                stop = self._stops.found(state)
                if stop is not None and self._may_cut is not None:
                    stop = self._allowed_stop(position)
                if stop is not None:
                    found.append(_Match(position - len(stop.encode()), position, stop))
            self._state = state
        if self._search is not None:
            for end, byte in enumerate(data, len(self._data) - len(data) + 1):
                start = self._search.push(byte)
                if start is not None and (not self._include_stop or self._cuts(end)):
                    found.append(_Match(start, end, self._stop_regex or ""))
                    break
        return min(found, key=lambda match: (match.start, match.start - match.end), default=None)

    def _allowed_stop(self, position: int) -> str | None:
        """The longest stop ending at byte `position` at which the text may be cut."""
        for stop in self._texts:
            start = position - len(stop)
            if self._data[max(start, 0) : position] == stop and self._cuts(
                position if self._include_stop else start
            ):
                return stop.decode()
        return None

    def _searching(self, regex: str) -> StopSearch:
        """The search for a regex; without its match in the text, one counts where the text before
        it may be cut."""
        filtered = self._may_cut is not None and not self._include_stop
        return StopSearch(compile_stop(regex), self._cuts if filtered else None)

    def _cuts(self, cut: int) -> bool:
        return self._may_cut is None or self._may_cut(self._data, cut)

    def _send(self, end: int, final: bool) -> str:
        """Decode up to byte `end`; `final`: no character spans it, so an incomplete one is bad.

        Held-back bytes begin with a stop's first byte, which is never a continuation byte, so a
        character left incomplete before them can't be completed.
        """
        text = self._decoder.decode(bytes(self._data[self._sent : end]), final)
        self._sent = end
        if text:
            self._parts.append(text)
        return text

    def _end(self, reason: str, matched: str | int | None, cut: int) -> Step:
        self.finished, self.matched = reason, matched
        text = self._send(cut, True)
        kept = bisect_right(self._ends, cut)
        start = self._ends[kept - 1] if kept else 0
        while start < cut and _splits_character(self._data, start, cut):
            # The cut token's kept bytes complete a character begun in whole tokens.
            kept -= 1
            start = self._ends[kept - 1] if kept else 0
        self.kept = kept
        self.tail = self._data[start:cut].decode(errors="replace")
        return Step(text, reason, matched)


def _splits_character(data: bytearray, border: int, end: int) -> bool:
    """Whether decoding the bytes before and after `border` apart changes the text up to `end`."""
    low = max(0, border - 3)
    apart = data[low:border].decode(errors="replace") + data[border:end].decode(errors="replace")
    return apart != data[low:end].decode(errors="replace")
