"""The language: Python functions as programs of generations, choices, forks and joins.

    import ramet.lang as rm

    @rm.function
    def few_shot(s, question):
        s += "Q: What is the capital of France?\\nA: Paris\\n"
        s += "Q: " + question + "\\nA:" + rm.gen("answer", stop="\\n", max_tokens=16)

    state = few_shot.run(question="What is the capital of Italy?")
    print(state["answer"])

Importing this loads no model and no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ramet.lang.api import (
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    gen_int,
    gen_string,
    image,
    select,
    special,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
    video,
)
from ramet.lang.choices import (
    exact_likelihood,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from ramet.lang.constraints import accepts
from ramet.lang.errors import (
    BackendError,
    Cancelled,
    ContextOverflow,
    GrammarError,
    InvalidArgument,
    PoolTooSmall,
    ProgramError,
    RametError,
    UnsupportedFeature,
)
from ramet.lang.group import ProgramStateGroup
from ramet.lang.program import Function, function
from ramet.lang.reasoning import separate_reasoning
from ramet.lang.session import flush_cache, get_server_info, session, set_default_backend
from ramet.lang.state import ProgramState
from ramet.lang.tracer import call

if TYPE_CHECKING:
    from ramet.lang.backends.endpoint import RuntimeEndpoint
    from ramet.lang.backends.openai import OpenAI
    from ramet.runtime.runtime import Runtime

global_config = session.config

__all__ = [
    "BackendError",
    "Cancelled",
    "ContextOverflow",
    "Function",
    "GrammarError",
    "InvalidArgument",
    "OpenAI",
    "PoolTooSmall",
    "ProgramError",
    "ProgramState",
    "ProgramStateGroup",
    "RametError",
    "Runtime",
    "RuntimeEndpoint",
    "UnsupportedFeature",
    "accepts",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "call",
    "exact_likelihood",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "global_config",
    "greedy_token_selection",
    "image",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "special",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]


_BACKENDS = {
    "OpenAI": "ramet.lang.backends.openai",
    "Runtime": "ramet.runtime.runtime",
    "RuntimeEndpoint": "ramet.lang.backends.endpoint",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # Loaded when first named: a program on one backend never needs the others.
    if name in _BACKENDS:
        return getattr(importlib.import_module(_BACKENDS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
