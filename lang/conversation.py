"""The chat messages of one state: which role is open, and what the template adds around contents.

Every method that takes content gives the pieces of text to append for it. Used by `branch.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ramet.lang.backends.protocol import Piece
from ramet.lang.chat import ChatPieces, Opening, Trim, common_prefix
from ramet.lang.errors import ProgramError
from ramet.lang.values import CallValue


@dataclasses.dataclass
class Turn:
    """One message; `parts` are its contents as the program wrote them, and its calls."""

    role: str
    parts: list[str | CallValue] = dataclasses.field(default_factory=list)


class Conversation:
    """Messages so far. At most one is open; outside of it, text is ordinary prompt text.

    A template that strips contents does so to literals here: whitespace at the start of a message
    is dropped, at its end held back until more content follows. Generated text is never touched.
    """

    def __init__(self, chat: ChatPieces, bos: str) -> None:
        self._chat = chat
        self._bos = bos
        self.turns: list[Turn] = []
        """The messages, the open one last."""
        self.role: str | None = None
        """The role of the open message."""
        self._opening: Opening | None = None  # Its rest, which depends on the first content.
        self._trim = Trim("", "")
        self._fresh = True  # No content yet, so that whitespace may still be stripped.
        self._held = ""

    def copy(self) -> Conversation:
        """An equal one that goes its own way."""
        twin = Conversation(self._chat, self._bos)
        twin.turns = self.turns[:-1] + [
            Turn(turn.role, list(turn.parts)) for turn in self.turns[-1:]
        ]
        twin.role, twin._opening, twin._trim = self.role, self._opening, self._trim
        twin._fresh, twin._held = self._fresh, self._held
        return twin

    def begin(self, role: str, at_start: bool) -> list[Piece]:
        """Open a message. `at_start` says that the state has no text yet, so BOS may stand here.

        Raises ProgramError if one is open, or if the template refuses the role.
        """
        if self.role is not None:
            raise ProgramError(f"cannot open the {role} message inside the {self.role} message")
        history = tuple(turn.role for turn in self.turns)
        opening = self._chat.opening(history, role)
        self._trim = self._chat.trim(history, role)
        if any(isinstance(part, CallValue) for turn in self.turns[-1:] for part in turn.parts):
            self._chat.warn_if_rewriting()
        if not history and not at_start and self._bos:
            opening = Opening(
                opening.literal.removeprefix(self._bos), opening.generation.removeprefix(self._bos)
            )
        self.turns.append(Turn(role))
        self.role, self._fresh, self._held = role, True, ""
        common = common_prefix([opening.literal, opening.generation])
        self._opening = Opening(opening.literal[len(common) :], opening.generation[len(common) :])
        return [(common, "text")]

    def end(self, role: str) -> list[Piece]:
        """Close the open message; raises ProgramError if it isn't one of `role`."""
        if self.role != role:
            open_one = f"the open message is of role {self.role}" if self.role else "none is open"
            raise ProgramError(f"cannot end the {role} message: {open_one}")
        pieces = self._open()
        self.role, self._held = None, ""
        closing = self._chat.closing(tuple(turn.role for turn in self.turns))
        return [*pieces, (closing, "text")]

    def literal(self, text: str, special: bool) -> list[Piece]:
        """Text from the program: an ordinary prompt outside a message, content inside one."""
        if self.role is None:
            return [(text, "text")]
        self.turns[-1].parts.append(text)
        if special:
            return [*self._open(), *self._release(), (text, "text")]
        if self._fresh:
            text = text.lstrip(self._trim.left) if self._trim.left else text
        body = text.rstrip(self._trim.right) if self._trim.right else text
        if not body:
            self._held += text
            return []
        pieces = [*self._open(), *self._release(), (body, "content")]
        self._held = text[len(body) :]
        return pieces

    def before_call(self) -> list[Piece]:
        """What has to stand before a call that comes now."""
        if self.role is None:
            return []
        return [*self._open(by_model=True), *self._release()]

    def add_call(self, value: CallValue) -> None:
        """Note that a call is part of the open message, if there is one."""
        if self.role is not None:
            self.turns[-1].parts.append(value)

    def mark(self) -> tuple[int, int, str | None]:
        """Where it stands: the number of messages, of parts in the last one, and the open role."""
        return len(self.turns), len(self.turns[-1].parts) if self.turns else 0, self.role

    def content_since(self, mark: tuple[int, int, str | None]) -> str | None:
        """What was added to the message that was open at `mark`; None if other messages were."""
        num_turns, num_parts, role = mark
        if len(self.turns) != num_turns or self.role != role:
            return None
        return _text(self.turns[-1].parts[num_parts:]) if self.turns else ""

    def messages(self) -> list[dict[str, Any]]:
        """The messages as `{"role", "content"}`, waiting for the calls in them."""
        return [{"role": turn.role, "content": _text(turn.parts)} for turn in list(self.turns)]

    def _open(self, *, by_model: bool = False) -> list[Piece]:
        opening, self._opening, self._fresh = self._opening, None, False
        if opening is None:
            return []
        return [(opening.generation if by_model else opening.literal, "text")]

    def _release(self) -> list[Piece]:
        held, self._held = self._held, ""
        return [(held, "content")]


def _text(parts: list[str | CallValue]) -> str:
    return "".join(part if isinstance(part, str) else part.text() for part in list(parts))
