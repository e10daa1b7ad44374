"""The interface between the language and whatever runs its calls.

The embedded Runtime has it; so has any other backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.request import SamplingParams

Piece = tuple[str, str]
"""A text and its kind: "text", in which special tokens are parsed, or "content", in which they
stay ordinary text."""


class Tokenizer(Protocol):
    """What the language needs to know of a model's text: its size, its BOS, its chat template."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    @property
    def bos_id(self) -> int | None:
        """The id that begins a text, if there is one."""

    def special_text(self, token_id: int) -> str:
        """How a special token is written."""

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        """A conversation's text; raises ProgramError with the template's own words."""


class Handle(Protocol):
    """One context: text and calls in order. No method waits for the model."""

    def append(self, pieces: Sequence[Piece]) -> None:
        """Add text that stays pending until a call needs it."""

    def generate(
        self,
        params: SamplingParams,
        *,
        stream: bool,
        site: str,
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        """Queue a generation behind what the context has.

        `site` is the call's place in the program; `label` says how many calls stand before and
        after it on its longest chain, where that is known. Both are hints for the scheduler.
        """

    def select(
        self,
        choices: Sequence[str],
        method: str,
        *,
        temperature: float,
        site: str,
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        """Queue a selection behind what the context has."""

    def fork(self, n: int) -> Sequence[Handle]:
        """Contexts that go on from here, pending text included."""

    def join(self, children: Sequence[Any]) -> None:
        """Hear that what follows waits for these forks of this context; a hint."""

    def close(self) -> None:
        """Take no more operations; frees the context once the queued ones are done."""


class Backend(Protocol):
    """Something that runs programs."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    def open(self, *, seed: int | None = None, name: str | None = None) -> Handle:
        """The first context of a new instance of program `name`; an unseeded one gets a seed
        here."""

    def stats(self) -> dict[str, Any]:
        """Counters and sizes, as a flat dict of numbers; the embedded engine's has two tables
        beside them, `call_sites` and `programs`."""

    def flush_cache(self) -> object:
        """Forget cached text that no context holds."""

    def shutdown(self) -> None:
        """End it; calls in flight fail."""
