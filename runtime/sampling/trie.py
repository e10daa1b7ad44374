"""ChoiceTrie: the choices of a select as one trie, so that each position is scored once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class ChoiceTrie:
    """Token id lists below a common border, which is position 0.

    A position with children needs logits; a choice's last token is never computed for its own
    sake. With `given` true the border's own logits aren't wanted: each list's first token has no
    log-probability (it counts 0).
    """

    def __init__(self, choices: Sequence[Sequence[int]], given: bool = False) -> None:
        self.choices = choices
        self.children: list[dict[int, int]] = [{}]
        """Per position: token → position."""
        self.logprobs: list[dict[int, float]] = [{}]
        """Per position: token → its log-probability there, filled by `put`."""
        for ids in choices:
            position = 0
            for token in ids:
                child = self.children[position].get(token)
                if child is None:
                    child = len(self.children)
                    self.children[position][token] = child
                    self.children.append({})
                    self.logprobs.append({})
                position = child
        if given:
            self.logprobs[0] = dict.fromkeys(self.children[0], 0.0)

    def unscored(self, position: int) -> list[int]:
        """The tokens whose log-probability is still wanted at a position."""
        return [] if self.logprobs[position] else list(self.children[position])

    def put(self, position: int, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Record the log-probabilities of a position's tokens."""
        self.logprobs[position] = dict(zip(tokens, logprobs, strict=True))

    def branches(self) -> Iterator[tuple[list[int], list[int]]]:
        """The maximal paths to positions that need logits, depth-first: (token ids, positions).

        Computing and scoring them all scores everything; `positions[0]` is the border.
        """
        stack: list[tuple[list[int], list[int]]] = [([], [0])]
        while stack:
            ids, positions = stack.pop()
            below = [(t, c) for t, c in self.children[positions[-1]].items() if self.children[c]]
            if not below:
                yield ids, positions
            for token, child in reversed(below):
                stack.append(([*ids, token], [*positions, child]))

    def values(self, choice: int) -> list[float]:
        """The log-probabilities of a choice's tokens, in order."""
        found: list[float] = []
        position = 0
        for token in self.choices[choice]:
            found.append(self.logprobs[position][token])
            position = self.children[position][token]
        return found

    def position_of(self, ids: Sequence[int]) -> int:
        """The position that a token path leads to."""
        position = 0
        for token in ids:
            position = self.children[position][token]
        return position
