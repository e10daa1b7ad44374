"""What a chat template writes around the contents of messages, derived by asking the template.

A template renders whole conversations; a program writes one message after another, each in pieces.
So sentinel contents are rendered in conversations of the same shape, and the text between two
sentinels is what belongs there. Used by `conversation.py`; knows no state.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Mapping, Sequence

from ramet.lang.backends.protocol import Tokenizer
from ramet.lang.errors import ProgramError

ROLES = ("system", "user", "assistant")
"""The roles that a message can have."""

_WHITESPACE = " \t\n\r\f\v"
_SENTINEL = re.compile(r"ramet\d+content")
_THOUGHT = "<think>\nrametthought\n</think>\n\nramet"
# What to render a message with: some templates show a system message only before a user's, and
# some add an empty thought to an assistant's message while it is the last one.
_COMPANY: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "system": (("user",), (), ("assistant",)),
    "user": ((), ("assistant",)),
    "assistant": (("user",), ()),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Opening:
    """What stands between the closing of the last message and a new content."""

    literal: str
    """Before a content that begins with the program's own text."""
    generation: str
    """Before a content that the model begins; may differ for the assistant only."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trim:
    """The characters that the template strips from the two ends of a content."""

    left: str
    right: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """A conversation in which the template shows a message, and the text before its content."""

    roles: tuple[str, ...]
    index: int
    before: str
    moved: bool
    """Whether another message stands there while this one is the last, or alone."""


class ChatPieces:
    """The pieces of one tokenizer's chat template, each derived once per kind of position.

    A position is given by the roles of the messages before it. Raises ProgramError with the
    template's own words where it refuses a role, and UnsupportedFeature where there is no template.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._openings: dict[tuple[tuple[str, ...], str], Opening] = {}
        self._closings: dict[tuple[str, ...], str] = {}
        self._trims: dict[tuple[tuple[str, ...], str], Trim] = {}
        self._rewrites: bool | None = None
        self._warned = False

    def opening(self, history: tuple[str, ...], role: str) -> Opening:
        """The text before a content of `role` that follows messages of the roles `history`."""
        key = (_shorten(history), role)
        if key not in self._openings:
            self._openings[key] = self._derive_opening(*key)
        return self._openings[key]

    def closing(self, history: tuple[str, ...]) -> str:
        """The text after the last content of `history` that stands there whatever follows."""
        key = _shorten(history)
        if key not in self._closings:
            self._closings[key] = common_prefix(self._tails(key))
        return self._closings[key]

    def trim(self, history: tuple[str, ...], role: str) -> Trim:
        """What the template strips from a content of `role` that follows `history`."""
        key = (_shorten(history), role)
        if key not in self._trims:
            place = self._find(*key)
            self._trims[key] = Trim(self._stripped(place, True), self._stripped(place, False))
        return self._trims[key]

    def warn_if_rewriting(self) -> None:
        """Warn, once, if the template drops the thinking of earlier assistant messages."""
        if self._rewrites is None:
            try:
                text = self._render(("user", "assistant", "user"), {1: _THOUGHT})
                self._rewrites = "rametthought" not in text
            except ProgramError:
                self._rewrites = False
        if self._rewrites:
            self._warn("removes the thinking from earlier assistant messages")

    def _derive_opening(self, history: tuple[str, ...], role: str) -> Opening:
        place = self._find(history, role)
        if place.moved:
            self._warn("moves the system message when messages are added")
        closing = self.closing(history) if history else ""
        literal = place.before[len(closing) :]
        if role != "assistant":
            return Opening(literal, literal)
        prompt = self._generation_tail(history)
        if prompt is None:
            # Without a generation prompt the model begins where the content would; a template's
            # space there belongs to the first word, which the model writes with its own space.
            return Opening(literal, literal.rstrip(" "))
        return Opening(literal, prompt[len(closing) :])

    def _tails(self, history: tuple[str, ...]) -> list[str]:
        """All texts that may follow the last content of `history`, up to the next content."""
        tails = []
        for role in ROLES:
            try:
                tails.append(self._find(history, role).before)
            except ProgramError:
                continue
        for generation in (False, True):
            tail = self._tail(history, generation)
            if tail is not None:
                tails.append(tail)
        return tails

    def _tail(self, history: tuple[str, ...], generation: bool) -> str | None:
        try:
            text = self._render(history, generation=generation)
        except ProgramError:
            return None
        parts = text.split(_sentinel(len(history) - 1))
        if len(parts) != 2 or _SENTINEL.search(parts[1]):
            return None
        return parts[1]

    def _generation_tail(self, history: tuple[str, ...]) -> str | None:
        """`_tail` with the generation prompt; None if the template has no such prompt."""
        if not history:
            return None
        prompt = self._tail(history, True)
        return None if prompt == self._tail(history, False) else prompt

    def _find(self, history: tuple[str, ...], role: str) -> _Place:
        place = self._look(history, role, moved=False)
        if place is None and history[:1] == ("system",):
            place = self._look(history[1:], role, moved=True)
        if place is None:
            raise ProgramError(
                f"the model's chat template has no stable text before a {role} message after "
                f"{', '.join(history) or 'nothing'}; write the template's text as plain text"
            )
        return place

    def _look(self, history: tuple[str, ...], role: str, *, moved: bool) -> _Place | None:
        refusal: ProgramError | None = None
        for company in _COMPANY[role]:
            roles = (*history, role, *company)
            try:
                text = self._render(roles)
            except ProgramError as error:
                refusal = refusal or error
                continue
            before = _between(text, len(history))
            if before is not None:
                return _Place(roles, len(history), before, moved)
            moved = True
        if refusal is not None:
            raise refusal
        return None

    def _stripped(self, place: _Place, left: bool) -> str:
        plain, sentinel = self._render(place.roles), _sentinel(place.index)
        stripped = ""
        for space in (" ", "\n"):
            content = space + sentinel if left else sentinel + space
            if self._render(place.roles, {place.index: content}) == plain:
                stripped += space
        return _WHITESPACE if stripped == " \n" else stripped

    def _render(
        self,
        roles: tuple[str, ...],
        contents: Mapping[int, str] | None = None,
        generation: bool = False,
    ) -> str:
        contents = contents or {}
        messages = [
            {"role": role, "content": contents.get(index, _sentinel(index))}
            for index, role in enumerate(roles)
        ]
        return self._tokenizer.render_chat(messages, generation)

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the model's chat template {what}; a program's text is append-only, so there it "
                "differs from a rendering of the whole conversation",
                UserWarning,
                stacklevel=2,
            )


def common_prefix(texts: Sequence[str]) -> str:
    """The longest text that all begin with."""
    shortest = min(texts, key=len, default="")
    for length, character in enumerate(shortest):
        if any(text[length] != character for text in texts):
            return shortest[:length]
    return shortest


def _sentinel(index: int) -> str:
    return f"ramet{index}content"


def _between(text: str, index: int) -> str | None:
    """The text from the end of content `index - 1`, or the start, to content `index`."""
    if text.count(_sentinel(index)) != 1:
        return None
    before = text.split(_sentinel(index))[0]
    if index > 0:
        parts = before.split(_sentinel(index - 1))
        if len(parts) != 2:
            return None
        before = parts[1]
    return None if _SENTINEL.search(before) else before


def _shorten(history: tuple[str, ...]) -> tuple[str, ...]:
    """A short history of the same kind: a repeated pair of roles is left out."""
    head = history[:1] if history[:1] == ("system",) else ()
    start, last = len(head), len(history) - 4
    while start <= last and history[start : start + 2] == history[start + 2 : start + 4]:
        start += 2
    return head + history[start:]
