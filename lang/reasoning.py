"""Reasoning: the thinking that a model writes before its answer, told apart from the answer.

The state's text and ids stay as they were generated; only what the variables hold is split, and
only when it is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ramet.lang.errors import InvalidArgument
from ramet.lang.expr import Expr, Gen, Select, Sum, nodes_of
from ramet.lang.values import Pending, Value
from ramet.runtime.client.call import Chunk
from ramet.runtime.request import shown

SUFFIX: Final = "_reasoning_content"
"""What is added to a variable's name for the one with its thinking."""


class ThinkTags(NamedTuple):
    """How a family of models marks its thinking."""

    begin: str
    end: str
    always: bool
    """Whether it thinks without saying `begin`: the prompt said it, or nobody does."""


THINK_TAGS: Final[Mapping[str, ThinkTags]] = {
    "deepseek-r1": ThinkTags("<think>", "</think>", True),
    "deepseek-v3": ThinkTags("<think>", "</think>", False),
    "glm45": ThinkTags("<think>", "</think>", False),
    "kimi": ThinkTags("◁think▷", "◁/think▷", False),
    "qwen3": ThinkTags("<think>", "</think>", False),
    "qwen3-thinking": ThinkTags("<think>", "</think>", True),
    "step3": ThinkTags("<think>", "</think>", True),
}
"""By SGLang's names for them."""


class Split(NamedTuple):
    """The two parts of a text, without tags and outer blanks."""

    reasoning: str
    answer: str


def split_reasoning(text: str, model_type: str) -> Split:
    """A text's thinking and its answer.

    Thinking stands at the beginning, up to the end tag; where that never comes, the text was cut
    while the model still thought. A text that neither begins with thinking nor has its end is all
    answer, and stays as it is.
    """
    tags = THINK_TAGS[model_type]
    begun = text.lstrip().startswith(tags.begin)
    if not (begun or tags.always or tags.end in text):
        return Split("", text)
    inner = text.lstrip().removeprefix(tags.begin)
    reasoning, _, answer = inner.partition(tags.end)
    return Split(reasoning.strip(), answer.strip())


def separate_reasoning(expr: object, model_type: str | None = None) -> Expr:
    """The same calls, whose variables hold the answer; `NAME_reasoning_content` has the thinking.

    `s += separate_reasoning(gen("answer"), model_type="qwen3")` gives `s["answer"]` and
    `s["answer_reasoning_content"]`. Raises InvalidArgument for a model type that isn't known, an
    expression without a call, and a call without a name.
    """
    if model_type not in THINK_TAGS:
        raise InvalidArgument(
            f"model_type={shown(model_type)}: must be one of {', '.join(THINK_TAGS)}"
        )
    nodes = list(nodes_of(expr))
    calls = [node for node in nodes if isinstance(node, Gen)]
    if not calls or any(isinstance(node, Select) for node in nodes):
        raise InvalidArgument("separate_reasoning() takes an expression with gen() calls")
    for call in calls:
        if call.name is None:
            raise InvalidArgument(
                f"separate_reasoning(): the gen() at {call.site} has no name to keep its parts as"
            )
    marked = tuple(
        dataclasses.replace(node, reasoning=model_type) if isinstance(node, Gen) else node
        for node in nodes
    )
    return marked[0] if len(marked) == 1 else Sum(marked)


def variables_of(node: Gen | Select, value: Value) -> Iterator[tuple[str, Value]]:
    """The variables that a call sets: its name, and one more for its thinking."""
    if node.name is None:
        return
    model_type = node.reasoning if isinstance(node, Gen) else None
    if model_type is None:
        yield node.name, value
        return
    yield node.name, SplitValue(value, model_type, "answer")
    yield node.name + SUFFIX, SplitValue(value, model_type, "reasoning")


class SplitValue(Value):
    """One part of a call's text: a view, split when it is read."""

    def __init__(self, call: Value, model_type: str, part: str) -> None:
        self._call = call
        self._model_type = model_type
        self._part = part

    def read(self) -> str | list[str]:
        """The part, or a list of it if there are n samples."""
        text = self._call.read()
        if isinstance(text, list):
            return [self._of(one) for one in text]
        return self._of(text)

    def meta(self) -> Any:
        """What the engine says of the call."""
        return self._call.meta()

    def pending(self) -> Iterator[Pending]:
        """What the call still waits for."""
        yield from self._call.pending()

    def chunks(self) -> Iterator[str]:
        """The part in one piece: what it is shows at the end of the text."""
        text = self.read()
        first = text[0] if isinstance(text, list) else text
        if first:
            yield first

    async def achunks(self) -> AsyncIterator[tuple[str, Chunk | None]]:
        """`chunks`, without blocking the event loop."""
        await self.ready()
        for piece in self.chunks():
            yield piece, None

    def _of(self, text: str) -> str:
        split = split_reasoning(text, self._model_type)
        return split.answer if self._part == "answer" else split.reasoning
