"""Constrained: what the engine's constrained generations may sample, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ramet.runtime.cache.node import last_ids
from ramet.runtime.errors import RametError
from ramet.runtime.grammar.compiler import Compiler
from ramet.runtime.grammar.guide import Guide
from ramet.runtime.grammar.jump import CONTEXT_TOKENS, Jumps
from ramet.runtime.grammar.matcher import Matcher, look_ahead
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import vocabulary_of
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.rows import Sampled
from ramet.runtime.schedule.sequence import Generation
from ramet.runtime.tokenizer import Tokenizer

WAIT_SECONDS = 0.02
"""How long a call waits for its grammar before anything is computed. Most take a few milliseconds,
and what is wrong with a constraint is then said at once."""
PAUSE_SECONDS = 0.005
"""How long a step waits for grammars when it has nothing else to do."""


@dataclasses.dataclass(slots=True)
class Masked:
    """What a step does with its constrained generations."""

    masks: dict[Generation, bytes] = dataclasses.field(default_factory=dict)
    """What those may sample that sample in this step."""
    ended: list[Generation] = dataclasses.field(default_factory=list)
    """Those whose text is over without another token."""
    failed: list[tuple[Generation, RametError]] = dataclasses.field(default_factory=list)
    """Those that may sample nothing, and why."""


class Constrained:
    """Starts the guides of calls, and asks them what may come next."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._vocabulary = vocabulary_of(tokenizer, vocab_size)
        self._compiler = Compiler(self._vocabulary)
        self._jumps = Jumps(
            self._vocabulary, lambda text: tokenizer.encode([(text, "content")], continuation=True)
        )

    def guides(self, params: SamplingParams, limit: int) -> Sequence[Guide | None]:
        """One per sample of at most `limit` tokens, None without a constraint.

        Raises GrammarError for a constraint that doesn't compile, InvalidArgument for one whose
        texts all need more tokens; where compiling takes longer than a moment, it goes on beside
        the prompt's computation, and `masks` will say so.
        """
        if params.constraint is None:
            return [None] * params.n
        compilation = self._compiler.start(params.constraint)
        stop = None
        if params.stop_regex is not None and not params.include_stop:
            stop = self._compiler.start(Constraint("regex", params.stop_regex))
        guides = [Guide(compilation, params, self._jumps, stop) for _ in range(params.n)]
        if guides[0].ready(WAIT_SECONDS):
            for guide in guides:
                guide.begin(limit)
        return guides

    def masks(
        self, ready: Sequence[Generation], jump: Callable[[Generation], bool], idle: bool
    ) -> Masked:
        """What the generations that have a guide may sample.

        `jump` takes the text that is forced where a generation stands, and says whether there was
        any; it is asked where no token has been sampled yet. `idle`: the step has nothing else to
        do than to wait for grammars.
        """
        found = Masked()
        for sequence in ready:
            guide = sequence.guide if sequence.alive else None
            if guide is None:
                continue
            pause, idle = PAUSE_SECONDS if idle else 0.0, False  # Once, not for each that waits.
            if not (guide.begun or guide.ready(pause)):
                continue
            try:
                if not guide.begun:
                    guide.begin(sequence.limit)
                if guide.finished:  # The empty text was all there is.
                    sequence.output.finish("stop")
                    found.ended.append(sequence)
                elif sequence.output_ids or not jump(sequence):
                    found.masks[sequence] = guide.mask(sequence.output.may_end)
                elif sequence.output.finished is not None:
                    found.ended.append(sequence)
            except RametError as error:
                found.failed.append((sequence, error))
        return found

    def take(self, ready: Sequence[Generation], drawn: Sequence[Sampled]) -> list[Sampled]:
        """Let the guides go on by the tokens that were drawn, and look ahead for all at once.

        Returns the tokens that were chosen instead; a text that has to end has ended.
        """
        chosen = list(drawn)
        matchers: list[Matcher] = []
        for index, (sequence, sampled) in enumerate(zip(ready, drawn, strict=True)):
            guide = sequence.guide
            if guide is None or not sequence.alive or sampled.error is not None:
                continue
            left = sequence.limit - len(sequence.output_ids)
            token = guide.choose(sampled.token, last_ids(sequence.node, CONTEXT_TOKENS), left)
            if token is None:
                sequence.output.finish("stop")
                continue
            if token != sampled.token:
                chosen[index] = sampled._replace(token=token)
            guide.take(token, sequence.output.may_end)
            if guide.matcher is not None:
                matchers.append(guide.matcher)
        look_ahead(matchers, self._vocabulary.masks)
        return chosen


def wanted(
    going: Sequence[Generation], masks: Mapping[Generation, bytes]
) -> Sequence[bytes] | None:
    """Sets that have every token whose logit a step needs, one for each of `going`; None where it
    needs all. `masks` may have others, too, of a call that has just failed."""
    if any(s not in masks or s.params.return_logprob for s in going):
        return None
    return [masks[sequence] for sequence in going]
