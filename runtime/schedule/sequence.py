"""Sequence: the mutable life of one waiting or running path; what the scheduler orders.

A Generation samples along its path; a Branch only needs its path computed, to be scored. Both
want the same of the scheduler: that the path to `node` is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.origin import Origin
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.output import TextOutput
from ramet.runtime.sampling.rows import SampleRow
from ramet.runtime.sampling.trie import ChoiceTrie

if TYPE_CHECKING:
    from ramet.runtime.grammar.guide import Guide
    from ramet.runtime.schedule.call import GenerateCall, ScoreCall
    from ramet.runtime.schedule.context import Place


class Sequence:
    """Something that waits for its path to be computed, and pins it while it runs."""

    __slots__ = (
        "alive",
        "arrival",
        "node",
        "order",
        "origin",
        "place",
        "priority",
        "program",
        "running",
        "started",
        "wave",
    )

    def __init__(
        self,
        node: Node,
        program: int,
        priority: int,
        arrival: int,
        place: Place | None = None,
    ) -> None:
        self.node = node
        """End of the path; one reference is this sequence's."""
        self.program = program
        """Number of the program instance, in order of arrival."""
        self.priority = priority
        self.arrival = arrival
        self.place = place
        """Where its call stands in the program; None of a path that no call wants."""
        self.origin: Origin | None = None if place is None else place.origin
        """What its call is named and booked on."""
        self.running = False
        self.alive = True
        self.started: float | None = None
        """When it was first admitted, in seconds of `time.monotonic`."""
        self.wave = 0
        """The step before which it was queued. Those of one wave came together: none of them is
        a later arrival to another."""
        self.order: tuple[int, ...] = ()
        """Its place among the running ones: the last one is retracted first."""


class Branch(Sequence):
    """A path of scored choices: the logits of the token at path index `border - 1 + i` belong to
    position `positions[i]` of the trie."""

    __slots__ = ("border", "call", "positions", "trie")

    def __init__(
        self,
        node: Node,
        program: int,
        priority: int,
        arrival: int,
        *,
        call: ScoreCall,
        trie: ChoiceTrie,
        border: int,
        positions: list[int],
    ) -> None:
        super().__init__(node, program, priority, arrival, call.place)
        self.call = call
        self.trie = trie
        self.border = border
        self.positions = positions


class Generation(Sequence):
    """One sample being drawn: its output so far and all it needs to draw the next token."""

    __slots__ = (
        "account",
        "asked",
        "bare",
        "call",
        "counts",
        "drawable",
        "guide",
        "key",
        "limit",
        "output",
        "output_ids",
        "params",
        "plain",
        "prompt_ids",
        "prompt_len",
        "quiet_tokens",
        "rowless",
        "sample",
        "sent",
        "token_logprobs",
        "top_logprobs",
        "unplanned",
    )

    def __init__(
        self,
        node: Node,
        program: int,
        priority: int,
        arrival: int,
        *,
        call: GenerateCall,
        params: SamplingParams,
        sample: int,
        key: int,
        limit: int,
        output: TextOutput,
        prompt_ids: frozenset[int] | None,
    ) -> None:
        super().__init__(node, program, priority, arrival, call.place)
        self.call = call
        self.params = params
        self.sample = sample
        self.key = key
        self.limit = limit
        """Most tokens to sample, the context's end included."""
        self.output = output
        self.output_ids = output.ids
        self.counts: dict[int, int] = {}
        """How often each token was generated, for the penalties; empty of a `bare` one."""
        self.prompt_len = node.end
        self.prompt_ids = prompt_ids
        """The prompt's tokens, for the repetition penalty; None without one."""
        self.guide: Guide | None = None
        """What its constraint allows next, if it has one."""
        self.bare = False
        """Whether of its tokens only the ids and the text matter: there is no constraint, no
        penalty and no log-probability."""
        self.plain = False
        """Whether it is bare, and its tokens are simply the likeliest ones."""
        self.drawable = False
        """Whether it is bare, and its tokens are drawn from the model's logits as they are."""
        self.token_logprobs: list[float] = []
        self.top_logprobs: list[list[tuple[float, int]]] = []
        self.quiet_tokens = 0
        """Up to how many tokens only their ids matter, unless one is an end id of the model."""
        self.asked = SampleRow(0, params, key, 0, self.counts, prompt_ids)
        """What the sampler is asked; row, index, bans and mask are those of the step."""
        self.account = call.place.origin.account
        """Where its tokens are counted."""
        self.rowless = 0
        """Its tokens that took no decode row of its own: those that somebody had sampled before,
        forced ones, and those at the end that nothing came after."""
        self.unplanned = 1
        """When it is over: tokens at the end that it did not go on from."""
        self.sent = 0
        """Tokens already told to a stream."""
