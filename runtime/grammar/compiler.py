"""Compiler: constraints to grammars, in threads of its own, kept by their content.

What is small is compiled at once, under limits that end it within some milliseconds, and read with
little patience. What is large, or exceeds those, is tried by a process with a deadline (`probe`);
only what that finds good is built here. The mask engine lets go of the GIL, so the engine's steps
go on meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final

from ramet.runtime.grammar.closing.closer import Closer
from ramet.runtime.grammar.front_ends import source_of
from ramet.runtime.grammar.grammar import Grammar, most_together
from ramet.runtime.grammar.limits import LARGE, MAX_TOGETHER, USUAL, Limits
from ramet.runtime.grammar.matcher import TooComplex
from ramet.runtime.grammar.patience import OutOfPatience, patience
from ramet.runtime.grammar.probe import source_apart
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary

TRIED_BYTES: Final = 256
"""Bytes of a document that a grammar is tried on."""
NUM_THREADS: Final = 2
"""Compilations at the same time; and as many with a process of their own, for which no other
waits."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What a compilation may cost, at once and then in a process of its own."""

    usual: Limits = USUAL
    large: Limits = LARGE
    closing: float = 0.5
    """Seconds that working out how documents are closed may take; else they aren't."""
    apart_bytes: int = 16 * 1024
    """Larger texts are read by another process: reading is Python's work, which holds up steps."""
    together: int = MAX_TOGETHER
    """Terminals that meet more languages at once are built by another process first: the mask
    engine looks at its limits between characters only, and one can take for ever."""
    patience: float = 0.3
    """Seconds that reading a smaller one may take before it, too, is read by another process."""
    seconds: float = 10.0
    """The deadline of that process."""


def compile_constraint(
    constraint: Constraint, vocabulary: Vocabulary | None, bounds: Bounds
) -> Grammar:
    """The grammar of a constraint, over a vocabulary or over bytes only.

    Raises GrammarError for one that is malformed or exceeds the bounds, UnsupportedFeature without
    a package that it needs.
    """
    grammar = compile_at_once(constraint, vocabulary, bounds)
    return grammar or compile_apart(constraint, vocabulary, bounds)


def compile_at_once(
    constraint: Constraint, vocabulary: Vocabulary | None, bounds: Bounds
) -> Grammar | None:
    """The grammar, or None if it takes a process of its own; raises as `compile_constraint`."""
    if len(constraint.text) <= bounds.apart_bytes:
        with contextlib.suppress(TooComplex, OutOfPatience):
            with patience(bounds.patience):
                source = source_of(constraint)
            if most_together(source.lark) <= bounds.together:
                return _built(constraint, source, vocabulary, bounds.usual, bounds.closing)
    return None


def compile_apart(constraint: Constraint, vocabulary: Vocabulary | None, bounds: Bounds) -> Grammar:
    """The grammar of a constraint that a process of its own finds good; raises as
    `compile_constraint`."""
    source = source_apart(constraint, bounds.large, bounds.seconds)
    return _built(constraint, source, vocabulary, bounds.large, bounds.closing)


def _built(
    constraint: Constraint,
    source: Source,
    vocabulary: Vocabulary | None,
    limits: Limits,
    closing: float,
) -> Grammar:
    """A grammar that works at the beginning and, if it is of JSON, on one document; raises
    TooComplex."""
    grammar = Grammar(constraint, source, vocabulary, limits)
    grammar.check()
    if constraint.kind == "json_schema" and vocabulary is not None:
        closer = _closer(constraint, closing)
        opening = None if closer is None else closer.opening(grammar.byte_matcher())
        if opening is not None:
            grammar.closer, grammar.opening = closer, opening
            matcher = grammar.matcher()
            for token in vocabulary.spell(opening[:TRIED_BYTES]) or ():
                matcher.advance(token)
                _ = matcher.next_tokens
    return grammar


def _closer(constraint: Constraint, seconds: float) -> Closer | None:
    """None where making it would take more than so many seconds."""
    with contextlib.suppress(OutOfPatience), patience(seconds):
        return Closer(constraint.text, constraint.whitespace)
    return None


class Compilation:
    """A grammar that is there, or will be, or can't be."""

    def __init__(self, future: Future[Grammar]) -> None:
        self._future = future

    @classmethod
    def of(cls, grammar: Grammar) -> Compilation:
        """One that is over."""
        future: Future[Grammar] = Future()
        future.set_result(grammar)
        return cls(future)

    @property
    def done(self) -> bool:
        """Whether `grammar` answers at once."""
        return self._future.done()

    def wait(self, seconds: float) -> bool:
        """Wait until it is over, for so long at most; whether it is."""
        wait((self._future,), seconds)
        return self._future.done()

    @property
    def grammar(self) -> Grammar:
        """The grammar, waited for; raises what stood in its way."""
        return self._future.result()

    @property
    def failed(self) -> bool:
        """Whether it is over without a grammar."""
        return self._future.done() and self._future.exception() is not None


class Compiler:
    """Compiles constraints for one vocabulary; the last used are kept. Used by one thread."""

    def __init__(
        self, vocabulary: Vocabulary, *, capacity: int = 128, bounds: Bounds | None = None
    ) -> None:
        self.vocabulary = vocabulary
        self._capacity = capacity
        self._bounds = bounds or Bounds()
        self._known: OrderedDict[Constraint, Compilation] = OrderedDict()
        self._native = threading.Lock()
        self._quick = _Lane(self._at_once)
        self._slow = _Lane(self._apart)

    def start(self, constraint: Constraint) -> Compilation:
        """Begin to compile a constraint, or go on with what has begun. A failure isn't kept."""
        known = self._known.get(constraint)
        if known is None or known.failed:
            future: Future[Grammar] = Future()
            known = self._known[constraint] = Compilation(future)
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
            self._quick.put(constraint, future)
        self._known.move_to_end(constraint)
        return known

    def compile(self, constraint: Constraint) -> Grammar:
        """The grammar of a constraint; raises as `compile_constraint`."""
        return self.start(constraint).grammar

    def _at_once(self, constraint: Constraint, future: Future[Grammar]) -> None:
        with self._native:
            self.vocabulary.prepare()  # Built once, by whoever comes first.
        grammar = compile_at_once(constraint, self.vocabulary, self._bounds)
        if grammar is None:
            self._slow.put(constraint, future)
        else:
            future.set_result(grammar)

    def _apart(self, constraint: Constraint, future: Future[Grammar]) -> None:
        future.set_result(compile_apart(constraint, self.vocabulary, self._bounds))


class _Lane:
    """A queue and its threads, each of which ends when nothing is queued."""

    def __init__(self, work: Callable[[Constraint, Future[Grammar]], None]) -> None:
        self._work = work
        self._queue: deque[tuple[Constraint, Future[Grammar]]] = deque()
        self._hands = threading.Semaphore(NUM_THREADS)
        """Threads that may still start."""

    def put(self, constraint: Constraint, future: Future[Grammar]) -> None:
        """Queue an order."""
        self._queue.append((constraint, future))
        if self._hands.acquire(blocking=False):
            threading.Thread(target=self._run, name="ramet-grammar", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                constraint, future = self._queue.popleft()
            except IndexError:
                self._hands.release()
                # Something may have come after the look and before the release.
                if not self._queue or not self._hands.acquire(blocking=False):
                    return
                continue
            try:
                self._work(constraint, future)
            except BaseException as error:  # Whoever waits for it hears of it.
                future.set_exception(error)
