"""`Runtime`: the embedded engine as users hold it."""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ramet.runtime.builtin_model import prepared_folder
from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.client.channel import Message
from ramet.runtime.client.connection import SHUT_DOWN, EngineClient
from ramet.runtime.client.handle import Handle, Program
from ramet.runtime.client.transport import Transport, launch
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.errors import BackendError, InvalidArgument, RametError
from ramet.runtime.request import (
    SamplingParams,
    check_priority,
    check_program,
    check_seed,
    check_text,
    check_token_ids,
    shown,
)
from ramet.runtime.sampling.streams import stream_key
from ramet.runtime.tokenizer import Tokenizer

MAX_IN_FLIGHT = 4096
"""Most prompts of one `generate` that the engine has at once; what it keeps for the others would
grow with the list."""

Prompt = str | list[int]
"""One prompt: text, tokenised as `tokenizer(prompt)` does, or token ids."""


class Runtime:
    """A model, ready to run programs and prompts. Usable from any thread, and as a context manager.

    - `model`: a built-in name (`smollm2-135m`, the default, or `tiny`), a Hugging Face folder, a
      `.gguf` file or a hub id.
    - `device`: "auto" or "cpu"; `dtype`: "auto" (int8 on a CPU that can), "int8", "bfloat16",
      "float16", "float32" or "float64".
    - `max_context`: longest path in tokens; None is the model's own.
    - `pool_tokens`: KV slots, rounded down to whole pages; "auto" is a quarter of the free memory,
      at most 65,536 or the model's context. `page_size`: slots per page.
    - `chunk_tokens`: most rows that one step computes. `max_running`: most sequences at once.
      `target_step_ms`: what a step in which somebody decodes is meant to take at most; pieces of
      prompts beside it are sized accordingly, from 16 rows to `chunk_tokens`. None: no target.
    - `policy`: who is admitted first. "program", the default, takes what is cached while it is,
      goes depth-first over what shares prefixes, and lets at most `max_overtakes` prefill tokens
      of later arrivals pass anybody (None: four times the pool); "dfs", "lpm" (longest cached
      prefix) and "fcfs" are there to compare with.
    - `seed`: from which the seeds of unseeded programs derive.
    - `isolation`: the engine runs in its own "process", or on a "thread" of this one.
    - `model_path`: SGLang's word for `model`.

    The engine starts here, and ends with `shutdown()`, with the object, or with the interpreter.
    Raises InvalidArgument, UnsupportedFeature or BackendError if it can't start.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        device: str = "auto",
        dtype: str = "auto",
        max_context: int | None = None,
        pool_tokens: int | str = "auto",
        page_size: int = 16,
        chunk_tokens: int = 512,
        max_running: int = 256,
        policy: str = "program",
        max_overtakes: int | None = None,
        seed: int = 0,
        *,
        isolation: str = "process",
        target_step_ms: float | None = None,
        model_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if model_path is not None:
            if model is not None:
                raise InvalidArgument(
                    f"model_path={shown(model_path)}: is another word for model, which is given"
                )
            model = model_path
        config = RuntimeConfig(
            model=model,  # type: ignore[arg-type]
            device=device,
            dtype=dtype,
            max_context=max_context,
            pool_tokens=pool_tokens,
            page_size=page_size,
            chunk_tokens=chunk_tokens,
            target_step_ms=target_step_ms,
            max_running=max_running,
            policy=policy,
            max_overtakes=max_overtakes,
            seed=seed,
            isolation=isolation,
        )
        self._start(config, launch(config))

    @classmethod
    def over(cls, config: RuntimeConfig, transport: Transport) -> Self:
        """A Runtime on an engine that was started otherwise."""
        runtime = cls.__new__(cls)
        runtime._start(config, transport)
        return runtime

    def _start(self, config: RuntimeConfig, transport: Transport) -> None:
        self._config = config
        try:
            early = _tokenizer_of(prepared_folder(config.model))  # While the engine starts.
        except BaseException:
            transport.stop(0.0)
            transport.close()
            raise
        self._client = client = EngineClient(transport)
        # Runs when the object is dropped and when the interpreter exits, whichever is first.
        self._finalizer = weakref.finalize(self, client.shutdown)
        # A counter's next() is one bytecode, so submissions on several threads never share one.
        self._num_programs = itertools.count()
        directory = client.info["dir"]
        try:
            if directory is None:
                self._tokenizer = Tokenizer.tiny()
            else:
                self._tokenizer = early.get(directory) or Tokenizer.from_dir(directory)
        except BaseException:
            self.shutdown()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        state = "running" if self._finalizer.alive else "shut down"
        if self._finalizer.alive and self._client.ended:
            state = "ended by itself"
        return f"<Runtime {self.info['model']} on {self.info['device']}, {state}>"

    @property
    def config(self) -> RuntimeConfig:
        """What it was asked to be."""
        return self._config

    @property
    def info(self) -> dict[str, Any]:
        """What it became: model, vocab_size, max_context, pool_tokens, dtype, device, ..."""
        return dict(self._client.info)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    def open(
        self,
        *,
        seed: int | None = None,
        name: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        cache: bool = True,
    ) -> Handle:
        """The root context of a new program instance; `name` is the program's, for reports.

        `seed` fixes its random streams; without one it derives from the Runtime's and the number
        of programs opened before. Raises BackendError on a Runtime that was shut down.
        """
        check_seed("seed", seed)
        check_priority(priority)
        if name is not None:
            check_text("name", name)
        if cache_salt is not None:
            check_text("cache_salt", cache_salt)
        if not isinstance(cache, bool):
            raise InvalidArgument(f"cache={cache!r}: must be True or False")
        self._check_running()
        number = next(self._num_programs)
        if seed is None:
            seed = stream_key(self._config.seed, "program", number, 0)
        program = Program(self._client.next_id(), seed, priority, cache_salt, cache, name or "")
        return Handle(self._client, self._tokenizer, program, owner=self)

    def generate(
        self,
        prompt: Prompt | list[str] | list[list[int]],
        sampling_params: Mapping[str, Any] | SamplingParams | None = None,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Generate after one prompt or each of a list; `{"text", "meta"}` or a list of them.

        A prompt is text or a list of token ids. With `n` above 1, text and meta are lists of n.
        Everything is checked before anything is computed. When an item of a list fails, the others
        still finish, then the first failing item's error is raised.
        """
        prompts, single = _prompts(prompt, self._client.info["vocab_size"])
        params = SamplingParams.build(sampling_params)
        params.check_vocabulary(self._client.info["vocab_size"])
        handles = [self.open(name="Runtime.generate") for _ in prompts]
        try:
            errors, calls = self._run_all(handles, prompts, params)
        finally:
            for handle in handles:
                handle.forget()
        if errors:
            raise errors[0]
        outputs = [_output(call.result(), params.n) for call in calls]
        return outputs[0] if single else outputs

    def together(self) -> contextlib.AbstractContextManager[None]:
        """For somebody who submits much without waiting in between: what this thread submits inside
        a `with` block is sent at its end, in one message."""
        return self._client.together()

    def abort(self, program: int) -> None:
        """End all calls of a program (`Handle.program.program_id`); their callers get Cancelled.

        A program that is over, or that never was, is no error.
        """
        check_program(program)
        self._client.abort_program(program)

    def stats(self) -> dict[str, Any]:
        """Counters and gauges of the engine, settled: a flat dict of numbers, and two tables.

        Since the start: `calls`, `prompt_tokens` (of all samples), `cached_tokens` (of these, what
        was there or wanted by others), `generated_tokens`, `queue_seconds` and `run_seconds`
        (summed over calls, so that concurrent ones add up), `steps`, `peak_running`,
        `retractions` (samples that gave way to others for a while), `evicted_tokens`.
        `computed_tokens` are rows that the model ran: `edge_tokens` (prompts, the first time),
        `decode_tokens` (sampled ones) and `recomputed_tokens` (what had been there before);
        `head_rows` are the rows of logits. Now, in slots: `pool_tokens` = `free_tokens` +
        `cached_pool_tokens` + `held_tokens` (by what runs); and `running` and `waiting` samples,
        open `contexts`.

        Of the logged trace (`logged_calls`; `trace_complete` says whether it is all calls):
        `hit_rate`, the share of prompt tokens that was cached when its call came;
        `optimum_hit_rate`, the most that any order could have reached with room for all;
        `hit_ratio`, the one over the other; `optimum_tokens`, what had to be computed. What was
        computed again after an eviction is not in these rates but in `recomputed_tokens`.

        `call_sites` and `programs` have, by "file:line" and by program name, what their calls
        asked for and cost: calls, prompt_tokens, cached_tokens, computed_tokens, generated_tokens,
        queue_seconds and run_seconds. Each table's sums are the totals of the same names. 4,096
        names are told apart, the rest is "other". `computed_tokens` are the rows that were run
        for tokens that the calls were the first to ask for; a token that had to be computed again
        counts again, for whoever asked for it last.
        """
        self._check_running()
        return self._client.request("stats")

    def flush_cache(self) -> dict[str, Any]:
        """Forget all computed tokens that nothing running holds."""
        self._check_running()
        return self._client.request("flush")

    def shutdown(self) -> None:
        """End the engine; calls in flight fail. Safe to repeat."""
        self._client.shutdown()
        self._finalizer.detach()

    def _run_all(
        self, handles: list[Handle], prompts: list[Prompt], params: SamplingParams
    ) -> tuple[list[Exception], list[Call[CallResult]]]:
        """The calls, all over, and the errors of those that failed; all are planned before any is
        sent."""
        planned = [self._plan(*pair, params) for pair in zip(handles, prompts, strict=True)]
        calls = [call for _, call in planned]
        half = MAX_IN_FLIGHT // 2
        start, end = 0, MAX_IN_FLIGHT
        try:
            while start < len(calls):
                # In one message, so that prompts with a common beginning are planned together.
                with self._client.together():
                    ops = [op for some, _ in planned[start:end] for op in some]
                    self._client.submit(ops, calls[start:end])
                    for handle in handles[start:end]:
                        handle.close()
                planned[start:end] = [([], call) for call in calls[start:end]]
                start, end = end, end + half
                for call in calls[start - MAX_IN_FLIGHT : start - half]:
                    call.exception()
            return [error for call in calls if (error := call.exception()) is not None], calls
        except BaseException:
            for call in calls:
                call.abort()
            raise

    @staticmethod
    def _plan(
        handle: Handle, prompt: Prompt, params: SamplingParams
    ) -> tuple[list[Message], Call[CallResult]]:
        if isinstance(prompt, str):
            handle.append([(prompt, "text")])
        else:
            handle.append_ids(prompt)
        return handle.plan_generate(params, site="Runtime.generate")

    def _check_running(self) -> None:
        if not self._finalizer.alive:
            raise BackendError(SHUT_DOWN)


def _tokenizer_of(folder: Path | None) -> dict[str, Tokenizer]:
    """The tokenizer of a model's folder, by its path; nothing if it can't be had."""
    with contextlib.suppress(RametError, OSError):
        if folder is not None:
            return {str(folder): Tokenizer.from_dir(folder)}
    return {}


def _output(result: CallResult, n: int) -> dict[str, Any]:
    if n == 1:
        return {"text": result.text, "meta": result.meta[0]}
    return {"text": result.texts, "meta": result.meta}


def _prompts(prompt: object, vocab_size: int) -> tuple[list[Prompt], bool]:
    """The prompts as a list, and whether a single one was given."""
    if isinstance(prompt, str):
        return [check_text("prompt", prompt)], True
    if not isinstance(prompt, (list, tuple)):
        raise InvalidArgument(
            f"prompt={shown(prompt)}: must be a text, a list of token ids, or a list of either"
        )
    if not prompt:
        raise InvalidArgument("prompt=[]: must hold at least one prompt or token id")
    if all(isinstance(item, str) for item in prompt):
        return [check_text(f"prompt[{i}]", item) for i, item in enumerate(prompt)], False
    if all(isinstance(item, (list, tuple)) for item in prompt):
        return [_ids(f"prompt[{i}]", item, vocab_size) for i, item in enumerate(prompt)], False
    if any(isinstance(item, (str, list, tuple)) for item in prompt):
        raise InvalidArgument(
            "prompt: a list holds texts, lists of token ids, or token ids; not a mixture"
        )
    return [_ids("prompt", prompt, vocab_size)], True


def _ids(name: str, item: object, vocab_size: int) -> list[int]:
    ids = check_token_ids(name, item, vocab_size)
    if not ids:
        raise InvalidArgument(f"{name}=[]: must hold at least one token id")
    return ids
