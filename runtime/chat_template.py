"""Chat templates: the model's own Jinja template, rendered in a sandbox.

Called by the tokenizer. A template is untrusted text: it runs in jinja2's immutable sandbox, with
the same names that transformers offers to templates, and sees nothing else.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ramet.runtime.errors import ProgramError
from ramet.runtime.request import check_text

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The ChatML template, the one that `tiny` speaks."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks text to train on; here a no-op."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it as a plain set)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the two tags, unchanged."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One compiled chat template, with its special-token variables and a date that stays fixed.

    Raises ProgramError when the template's own syntax is wrong.
    """

    def __init__(
        self,
        source: str,
        variables: Mapping[str, str],
        now: datetime.datetime | None = None,
    ) -> None:
        self._variables = dict(variables)
        self._now = now if now is not None else datetime.datetime.now()
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._strftime_now
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ProgramError(f"the model's chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        """The text of a conversation, each message a mapping with `role` and `content`.

        Raises ProgramError with the template's own words when it refuses the messages.
        """
        for index, message in enumerate(messages):
            if isinstance(message.get("content"), str):
                check_text(f"messages[{index}]['content']", message["content"])
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._variables,
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise ProgramError(f"the model's chat template refuses: {error}") from error

    def _strftime_now(self, form: str) -> str:
        return self._now.strftime(form)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes HTML characters, which a prompt must keep.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
