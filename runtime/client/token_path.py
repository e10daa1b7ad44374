"""The client's mirror of a context's token ids.

The engine owns the real path; this one exists so that `prompt_token_ids` and `Handle.ids` need no
ids to cross the channel twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from ramet.runtime.client.call import Call, CallResult


class TokenPath:
    """An immutable path: a parent and one segment, either known ids or what a call will add.

    Forks share their parents' segments, and a path stays what it was when it grows elsewhere.
    """

    __slots__ = ("_parent", "_segment", "min_len")

    def __init__(
        self,
        parent: TokenPath | None = None,
        segment: list[int] | Call[CallResult] | None = None,
    ) -> None:
        self._parent = parent
        self._segment: list[int] | Call[CallResult] = [] if segment is None else segment
        known = len(segment) if isinstance(segment, list) else 0
        self.min_len: int = known + (parent.min_len if parent else 0)
        """Token ids that are certainly in it, whatever the calls will add."""

    def then(self, segment: list[int] | Call[CallResult]) -> TokenPath:
        """This path with `segment` after it."""
        return TokenPath(self, segment)

    def ids(self) -> list[int]:
        """All token ids; waits for the calls in it and raises the error of one that failed."""
        ids: list[int] = []
        for path in reversed(list(self._upward())):
            segment = path._segment
            ids += segment if isinstance(segment, list) else segment.result().entered
        return ids

    def _upward(self) -> Iterator[TokenPath]:
        path: TokenPath | None = self
        while path is not None:
            yield path
            path = path._parent
