"""TraceLog: the token ids of the calls that an engine served, and how near their order came to the
best one.

It only sees ids, as compact arrays, and costs a copy of them for each call. What it holds is
folded into a `PathTree` when it is much, or when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ramet.runtime.schedule.optimum import LoggedCall, PathTree, as_ids

MAX_TOKENS = 4 * 2**20
"""Most distinct tokens that are kept, at five bytes each and some for the branchings."""
IN_FLIGHT = 8
"""How many times more tokens of calls in flight, at four bytes each: most may be shared."""
_FOLD_TOKENS = 2**17
"""Folding so many takes milliseconds."""


class TraceLog:
    """The calls so far, until there were too many tokens; then it stops, and says so."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._tree = PathTree()
        self._begun: list[LoggedCall] = []
        self._ended: list[LoggedCall] = []
        self._held = 0
        """Tokens of calls that are not over, or not folded in."""
        self._unfolded = 0
        self._charged = 0
        self.complete = True
        """Whether every call is in it."""

    def begin(
        self,
        namespace: int,
        prompt: Sequence[int],
        *,
        prompt_tokens: int,
        charged_tokens: int,
        tails: Iterable[Sequence[int]] = (),
    ) -> LoggedCall | None:
        """Log a call that starts; None if the log has stopped."""
        if not self.complete:
            return None
        call = LoggedCall(
            namespace, as_ids(prompt), [as_ids(t) for t in tails], prompt_tokens, charged_tokens
        )
        size = call.num_ids
        if (
            self._held + size > IN_FLIGHT * self._max_tokens
            or self._tree.num_tokens > self._max_tokens
        ):
            self.complete = False
            return None
        self._charged += charged_tokens
        self._begun.append(call)
        self._held += size
        self._unfolded += size
        return call

    def end(self, call: LoggedCall, decoded: Iterable[Sequence[int]] = ()) -> None:
        """Log what a call sampled and went on from; it is over."""
        call.decoded = [as_ids(ids) for ids in decoded if ids]
        self._held -= call.num_ids - sum(map(len, call.decoded))
        self._unfolded += sum(map(len, call.decoded))
        if call.decoded:
            self._ended.append(call)
        if self._unfolded > _FOLD_TOKENS:
            self._fold()

    def forget(self, namespace: int) -> None:
        """Nobody will call in that namespace again, and all calls there are over: keep the figures
        without the ids."""
        self._fold()
        self._tree.forget(namespace)

    def report(self) -> dict[str, float | int | bool]:
        """The figures of the logged calls, as `stats()` has them.

        `hit_rate` is what was achieved, `optimum_hit_rate` the most that was possible, `hit_ratio`
        the one over the other (1 if nothing could be shared, and nothing was).
        `optimum_tokens` had to be computed. Exact when no call runs.
        """
        self._fold()
        best = self._tree.optimum
        rate = 0.0
        if best.prompt_tokens:
            rate = max(1.0 - self._charged / best.prompt_tokens, 0.0)
        return {
            "hit_rate": rate,
            "optimum_hit_rate": best.hit_rate,
            "hit_ratio": rate / best.hit_rate if best.hit_rate else 1.0,
            "optimum_tokens": best.computed_tokens,
            "logged_calls": best.calls,
            "trace_complete": self.complete,
        }

    def _fold(self) -> None:
        for call in self._begun:
            self._tree.add_prompt(call)
        for call in self._ended:
            self._tree.add_decoded(call)
        self._begun.clear()
        self._ended.clear()
        self._unfolded = 0
