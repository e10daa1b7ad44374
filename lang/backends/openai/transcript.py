"""What a context of a remote endpoint holds: its text, and the chat messages that are in it.

To the language an endpoint looks like a model with the ChatML template: `render_chat` writes it,
and `Transcript` reads it back. Markers count only where special tokens would be parsed, in pieces
of the kind "text"; what stands inside a role is "content" and never a marker, whatever it says.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ramet.lang.backends.protocol import Piece

_MARK = re.compile(r"<\|im_start\|>(\w+)\n|<\|im_end\|>\n?")


class Source(Protocol):
    """A call whose text becomes part of the transcript once it is there."""

    @property
    def text(self) -> str:
        """The text; read only after the call has ended well."""


Part = str | Source


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One chat message; the last one of a transcript may still be open."""

    role: str
    parts: tuple[Part, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Transcript:
    """A context as it stands; adding to it makes a new one."""

    parts: tuple[Part, ...] = ()
    """The whole text, markers included."""
    messages: tuple[Message, ...] = ()
    """The messages in it."""
    role: str | None = None
    """The role of the open message."""
    stray: str = ""
    """The first text that stands outside of messages."""
    special: str = ""
    """The first text inside a message that asked to be parsed as special tokens, and is no mark."""

    def then(self, pieces: Sequence[Piece]) -> Transcript:
        """With literal text added; neighbours of one kind are read together."""
        after, at = self, 0
        while at < len(pieces):
            end = at + 1
            while end < len(pieces) and pieces[end][1] == pieces[at][1]:
                end += 1
            text = "".join(text for text, _ in pieces[at:end])
            read = after._read if pieces[at][1] == "text" else after._add
            after = dataclasses.replace(read(text), parts=(*after.parts, text))
            at = end
        return after

    def then_call(self, call: Source) -> Transcript:
        """With the text of a call added."""
        after = self._add(call)
        return dataclasses.replace(after, parts=(*self.parts, call))

    def text(self) -> str:
        """The whole text; only once its calls have ended."""
        return text_of(self.parts)

    def render(self) -> list[dict[str, str]]:
        """The messages as an endpoint takes them; only once their calls have ended.

        An open message without content yet is left out: it is what the model shall write.
        """
        messages = [{"role": m.role, "content": text_of(m.parts)} for m in self.messages]
        if self.role is not None and not self.messages[-1].parts:
            messages.pop()
        return messages

    def _read(self, text: str) -> Transcript:
        """With text added that may hold markers."""
        after, at = self, 0
        for mark in _MARK.finditer(text):
            if (mark.group(1) is None) == (after.role is None):
                continue  # An end outside of a message, or a start inside one: no mark.
            after = after._add_raw(text[at : mark.start()])
            if mark.group(1) is None:
                after = dataclasses.replace(after, role=None)
            else:
                opened = (*after.messages, Message(mark.group(1)))
                after = dataclasses.replace(after, messages=opened, role=mark.group(1))
            at = mark.end()
        return after._add_raw(text[at:])

    def _add_raw(self, text: str) -> Transcript:
        after = self._add(text)
        if text and self.role is not None and not self.special:
            return dataclasses.replace(after, special=text)
        return after

    def _add(self, part: Part) -> Transcript:
        if part == "":
            return self
        if self.role is None:
            shown = part if isinstance(part, str) else "a call's text"
            return dataclasses.replace(self, stray=self.stray or shown)
        last = self.messages[-1]
        grown = Message(last.role, (*last.parts, part))
        return dataclasses.replace(self, messages=(*self.messages[:-1], grown))


def render_chat(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
    """Messages in ChatML, the form that `Transcript` reads."""
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return text + "<|im_start|>assistant\n" if add_generation_prompt else text


def text_of(parts: Sequence[Part]) -> str:
    """The joined text of parts."""
    return "".join(part if isinstance(part, str) else part.text for part in parts)
