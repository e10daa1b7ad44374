from __future__ import annotations

import dataclasses
import gc
import inspect
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_engine import ISOLATIONS, children, no_leaks, start_runtime

from ramet.runtime.client.call import Call
from ramet.runtime.client.handle import Handle
from ramet.runtime.client.transport import ProcessTransport
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.errors import (
    BackendError,
    Cancelled,
    ContextOverflow,
    InvalidArgument,
    PoolTooSmall,
)
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime

__all__ = ["no_leaks"]
pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_leaks")]

SHORT = {"max_new_tokens": 5}


@pytest.fixture(params=ISOLATIONS)
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with start_runtime(request.param) as runtime:
        yield runtime


def test_one_prompt_gives_one_dict(runtime: Runtime) -> None:
    for prompt in ("abc", [97, 98, 99]):
        output = runtime.generate(prompt, SHORT)
        assert isinstance(output, dict)
        assert output["text"] == "len=3"
        assert output["meta"]["prompt_token_ids"] == [97, 98, 99]


def test_a_list_gives_a_list_in_order(runtime: Runtime) -> None:
    for prompts in (["a" * i for i in range(1, 9)], [[7] * i for i in range(1, 9)]):
        outputs = runtime.generate(prompts, SamplingParams(max_new_tokens=5))
        assert [output["text"] for output in outputs] == [f"len={i}" for i in range(1, 9)]  # type: ignore[index]
    assert isinstance(runtime.generate(["a"], SHORT), list)


def test_samples_make_text_and_meta_lists(runtime: Runtime) -> None:
    output = runtime.generate("abc", {"n": 3, "max_tokens": 5})
    assert isinstance(output, dict)
    assert output["text"] == ["len=3"] * 3
    assert len(output["meta"]) == 3


def test_an_empty_text_is_a_prompt(runtime: Runtime) -> None:
    output = runtime.generate("", SHORT)
    assert isinstance(output, dict)
    assert output["text"] == "len=1"


@pytest.mark.parametrize(
    ("prompt", "params", "name"),
    [
        ([], SHORT, r"prompt=\[\]"),
        ([[]], SHORT, r"prompt\[0\]=\[\]"),
        ([[1], []], SHORT, r"prompt\[1\]=\[\]"),
        ([1, 2, 259], SHORT, "prompt: 259"),
        ([[1], [2, -1]], SHORT, r"prompt\[1\]: -1"),
        ([1, True], SHORT, "prompt: True"),
        ([1, 2.0], SHORT, "prompt: 2.0"),
        (["a", [1]], SHORT, "mixture"),
        ([1, "a"], SHORT, "mixture"),
        (None, SHORT, "prompt=None"),
        (3, SHORT, "prompt=3"),
        (b"abc", SHORT, "prompt=b'abc'"),
        ("a\ud800", SHORT, "surrogate"),
        (["a", "b\udfff"], SHORT, r"prompt\[1\]"),
        ("a", {"max_tokens": 0}, "max_new_tokens=0"),
        ("a", {"max_tokens": -1}, "max_new_tokens=-1"),
        ("a", {"temperature": float("nan")}, "temperature=nan"),
        ("a", {"temprature": 1}, "temprature"),
        ("a", {"logit_bias": {999: 1.0}}, "logit_bias: token id 999"),
        ("a", 7, "sampling_params=7"),
    ],
)
def test_bad_input_is_refused_by_name_and_the_next_request_is_served(
    prompt: Any, params: Any, name: str
) -> None:
    with start_runtime() as runtime:
        with pytest.raises(InvalidArgument, match=name):
            runtime.generate(prompt, params)
        assert runtime.stats()["contexts"] == 0
        assert runtime.generate("abc", SHORT)["text"] == "len=3"  # type: ignore[call-overload]


def test_one_prompt_that_is_too_long_keeps_the_others_from_starting() -> None:
    with start_runtime(max_context=5) as runtime:
        with pytest.raises(ContextOverflow, match="6 tokens; the context holds 5"):
            runtime.generate(["a", "abcdef"], SHORT)
        gc.collect()
        stats = runtime.stats()
        assert (stats["contexts"], stats["closed"]) == (0, 0)


def test_a_failing_item_is_raised_after_the_others_are_done(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Handle.plan_generate
    planned: list[Any] = []

    def plan_with_a_failure(self: Handle, params: SamplingParams, **more: Any) -> Any:
        site = "fail" if len(planned) == 1 else "fine"
        ops, call = plan(self, params, **{**more, "site": site})
        planned.append(call)
        return ops, call

    monkeypatch.setattr(Handle, "plan_generate", plan_with_a_failure)
    with pytest.raises(PoolTooSmall, match="17 tokens"):
        runtime.generate(["a", "b", "c"], SHORT)
    assert [call.done() for call in planned] == [True] * 3
    assert runtime.generate("abc", SHORT)["text"] == "len=3"  # type: ignore[call-overload]
    stats = runtime.stats()
    assert stats["closed"] == stats["contexts"] == 4


def test_a_list_arrives_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_runtime() as runtime:
        sizes: list[int] = []
        send = runtime._client._transport.send

        def record(ops: list[dict[str, Any]]) -> None:
            sizes.append(len([op for op in ops if op["op"] == "generate"]))
            send(ops)

        monkeypatch.setattr(runtime._client._transport, "send", record)
        runtime.generate(["a"] * 40, SHORT)
        assert max(sizes) == 40


def test_abort_of_a_program_cancels_it(runtime: Runtime) -> None:
    handle = runtime.open()
    call = handle.generate(SamplingParams(), stream=False, site="hang")
    runtime.abort(handle.program.program_id)
    with pytest.raises(Cancelled):
        call.result(20)


def test_open_checks_its_arguments(runtime: Runtime) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"seed": 2**64}, "seed="),
        ({"seed": 1.5}, "seed=1.5"),
        ({"priority": "high"}, "priority='high'"),
        ({"cache_salt": 3}, "cache_salt=3"),
        ({"cache": None}, "cache=None"),
    ]
    for fields, name in bad:
        with pytest.raises(InvalidArgument, match=name):
            runtime.open(**fields)
    handle = runtime.open(seed=-1, priority=2, cache_salt="x", cache=False)
    assert (handle.program.seed, handle.program.cache_salt) == (-1, "x")


def test_values_are_asked_of_the_engine(runtime: Runtime) -> None:
    assert runtime.stats()["contexts"] == 0
    assert runtime.flush_cache() == {"freed": 0}
    assert runtime.tokenizer.vocab_size == 259
    assert runtime.info["model"] == runtime.config.model == "fake"
    assert "running" in repr(runtime)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_runtime_that_is_shut_down_says_so(isolation: str) -> None:
    runtime = start_runtime(isolation)
    handle = runtime.open()
    runtime.shutdown()
    runtime.shutdown()
    uses = (
        lambda: runtime.generate("a", SHORT),
        lambda: runtime.open(),
        lambda: runtime.stats(),
        lambda: runtime.flush_cache(),
        lambda: handle.generate(SamplingParams()),
    )
    for use in uses:
        with pytest.raises(BackendError, match="the Runtime is shut down"):
            use()
    assert "shut down" in repr(runtime)
    runtime.abort(1)
    handle.close()


def test_shutdown_wakes_callers_on_other_threads() -> None:
    runtime = start_runtime("process")
    errors: list[BaseException] = []
    call = runtime.open().generate(SamplingParams(), site="hang")

    def wait() -> None:
        try:
            call.result()
        except BackendError as error:
            errors.append(error)

    waiters = [threading.Thread(target=wait) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    runtime.shutdown()
    for waiter in waiters:
        waiter.join()
    assert [str(error) for error in errors] == ["the Runtime is shut down"] * 3


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_dropped_runtime_ends_its_engine(isolation: str) -> None:
    runtime: Runtime | None = start_runtime(isolation)
    del runtime
    gc.collect()
    assert children() == []


def test_a_killed_engine_fails_the_caller_and_the_next_ones() -> None:
    runtime = start_runtime("process")
    call = runtime.open().generate(SamplingParams(), site="hang")
    transport = runtime._client._transport
    assert isinstance(transport, ProcessTransport)
    os.kill(transport.pid, signal.SIGKILL)
    with pytest.raises(BackendError, match="SIGKILL"):
        call.result(20)
    for use in (lambda: runtime.generate("a"), runtime.stats):
        with pytest.raises(BackendError, match="SIGKILL"):
            use()
    runtime.shutdown()


def test_an_interrupted_caller_aborts_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_runtime() as runtime:
        plan = Handle.plan_generate
        calls: list[Any] = []

        def plan_a_hang(self: Handle, params: SamplingParams, **more: Any) -> Any:
            planned = plan(self, params, **{**more, "site": "hang"})
            calls.append(planned[1])
            return planned

        def interrupt(self: Call[Any]) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Handle, "plan_generate", plan_a_hang)
        monkeypatch.setattr(Call, "exception", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runtime.generate(["a", "b"])
        for call in calls:
            with pytest.raises(Cancelled):
                call.result(20)


def test_fields_are_those_of_the_config_and_are_checked_before_anything_starts() -> None:
    with pytest.raises(InvalidArgument, match="policy='random'"):
        Runtime(policy="random")
    with pytest.raises(InvalidArgument, match="page_size=0"):
        Runtime(page_size=0)
    assert children() == []
    names = [field.name for field in dataclasses.fields(RuntimeConfig)]
    signature = inspect.signature(Runtime.__init__)
    assert list(signature.parameters)[1:] == [*names, "model_path"]
    with pytest.raises(InvalidArgument, match="another word for model"):
        Runtime("tiny", model_path="tiny")
    defaults = {field.name: field.default for field in dataclasses.fields(RuntimeConfig)}
    assert {name: signature.parameters[name].default for name in names} == defaults


def test_the_real_engine_runs_calls_forks_and_selections() -> None:
    with Runtime("tiny", dtype="float64", isolation="thread", pool_tokens=4096) as runtime:
        root = runtime.open(seed=1)
        root.append([("a shared beginning: ", "text")])
        params = SamplingParams(max_new_tokens=6, ignore_eos=True)
        drafts = [child.generate(params, stream=True) for child in root.fork(4)]
        for draft in drafts:
            assert "".join(chunk.text for chunk in draft.chunks()) == draft.result().text
        choice = root.select(["yes", "no", ""], "exact_likelihood")
        assert choice.result().text in ("yes", "no", "")
        assert sum(choice.result().meta[0]["probabilities"]) == pytest.approx(1.0)
        root.append([(" and more", "text")])
        after = root.generate(params)
        assert (
            after.result().meta[0]["prompt_token_ids"] == root.ids()[: -len(after.result().entered)]
        )
        again = runtime.open(seed=1)
        again.append([("a shared beginning: ", "text")])
        same = [child.generate(params).result().texts for child in again.fork(4)]
        assert same == [draft.result().texts for draft in drafts]
        root.close()
        again.close()
        with pytest.raises(ContextOverflow, match="16,384"):
            runtime.generate("x" * 16_385)
        with pytest.raises(PoolTooSmall):
            runtime.generate(["fine", "x" * 5_000], {"max_tokens": 1})
        gc.collect()
        stats = runtime.stats()
    total = stats["edge_tokens"] + stats["decode_tokens"] + stats["recomputed_tokens"]
    assert stats["computed_tokens"] == total
    assert stats["free_tokens"] + stats["cached_pool_tokens"] == stats["pool_tokens"]
    assert (stats["held_tokens"], stats["running"], stats["waiting"]) == (0, 0, 0)
    assert stats["contexts"] == 0
    for table in ("call_sites", "programs"):
        for name in ("calls", "prompt_tokens", "cached_tokens", "generated_tokens"):
            assert sum(tally[name] for tally in stats[table].values()) == stats[name]
        assert "Runtime.generate" in stats[table]


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InvalidArgument, match="no-such-model"):
        Runtime("no-such-model")
