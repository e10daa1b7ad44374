"""How a program is run, as opposed to its own arguments: the options of `run` and `run_batch`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ramet.lang.api import SHORT_NAMES, sampling_fields
from ramet.lang.arguments import Arguments
from ramet.lang.errors import InvalidArgument
from ramet.runtime.request import SamplingParams, check_seed, shown

# A constraint is a call's own: a run has none.
_SAMPLING = {f.name for f in dataclasses.fields(SamplingParams)} - {"constraint"}
_SAMPLING |= SHORT_NAMES.keys()
_RUN_OPTIONS = ("backend", "seed", "timeout", "stream", "return_text_in_logprobs")
_BATCH_OPTIONS = (
    "backend",
    "timeout",
    "num_threads",
    "progress_bar",
    "generator_style",
    "return_exceptions",
    "seed",
)


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one run; raises InvalidArgument."""

    backend: Any = None
    seed: int | None = None
    timeout: float | None = None
    stream: bool = False
    return_text_in_logprobs: bool = True
    """Whether entries of log-probabilities keep the tokens' texts, where a call doesn't say."""
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What a `gen` inherits where it says nothing."""

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)
        for name in ("stream", "return_text_in_logprobs"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name}={shown(getattr(self, name))}: must be True or False")
        timeout = self.timeout
        if timeout is not None and (
            isinstance(timeout, bool)
            or not isinstance(timeout, (int, float))
            or not (math.isfinite(timeout) and timeout > 0)
        ):
            raise InvalidArgument(
                f"timeout={timeout!r}: must be a number of seconds above 0, or None"
            )


def split(arguments: Arguments, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], RunOptions]:
    """The body's own keywords, and the run's options. A keyword that the body declares is the
    body's; raises InvalidArgument for one that nobody knows."""
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in arguments.names:
            own[name] = value
        elif name in _RUN_OPTIONS or name in _SAMPLING:
            rest[name] = value
        elif arguments.open_ended:
            own[name] = value
        else:
            known = [*_RUN_OPTIONS, *sorted(_SAMPLING - {*_RUN_OPTIONS})]
            raise arguments.unknown(name, [*arguments.names, *known])
    if not rest:
        return own, _PLAIN
    run = {name: rest[name] for name in _RUN_OPTIONS if name in rest}
    # The run's `seed` is the program's; as a sampling field it would be every call's.
    sampling = {name: value for name, value in rest.items() if name not in _RUN_OPTIONS}
    return own, RunOptions(**run, sampling=sampling_fields(sampling)[0] if sampling else {})


def batch_options(
    arguments: Arguments, backend: Any, timeout: float | None, sampling: Mapping[str, Any]
) -> RunOptions:
    """The options that the items of a batch have in common."""
    for name in sampling:
        if name not in _SAMPLING:
            raise arguments.unknown(name, [*_BATCH_OPTIONS, *sorted(_SAMPLING)])
    fields = sampling_fields(sampling)[0]
    return RunOptions(backend, None, timeout, sampling=fields)


_PLAIN = RunOptions()
