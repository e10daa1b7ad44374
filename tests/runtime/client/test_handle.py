from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_engine import no_leaks, start_runtime

from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.client.handle import Handle
from ramet.runtime.errors import Cancelled, ContextOverflow, InvalidArgument, ProgramError
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime
from ramet.runtime.sampling.streams import stream_key

__all__ = ["no_leaks"]
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_leaks")]

PARAMS = SamplingParams(max_new_tokens=5)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with start_runtime() as runtime:
        yield runtime


@pytest.fixture
def sent(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The operations that cross, in order."""
    ops: list[dict[str, Any]] = []
    transport = runtime._client._transport
    send = transport.send

    def record(batch: list[dict[str, Any]]) -> None:
        ops.extend(batch)
        send(batch)

    monkeypatch.setattr(transport, "send", record)
    return ops


def _kinds(ops: list[dict[str, Any]]) -> list[str]:
    return [op["op"] for op in ops]


def _ids(text: str) -> list[int]:
    return list(text.encode())


def _done(call: Call[CallResult]) -> CallResult:
    return call.result(20)


def test_text_stays_pending_until_a_call_and_is_tokenised_together(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open(seed=3)
    handle.append([("Q: ", "text"), ("", "text")])
    handle.append([("hi", "content")])
    assert sent == []
    result = _done(handle.generate(PARAMS, stream=False, site="here"))
    assert _kinds(sent) == ["open", "append", "generate"]
    assert sent[1]["ids"] == _ids("Q: hi")
    assert sent[2]["params"] == {"max_new_tokens": 5}
    assert sent[2]["site"] == "here"
    assert result.text == "len=5"
    assert handle.ids() == _ids("Q: hilen=5")


def test_meta_has_the_whole_path_and_the_engines_counts(runtime: Runtime) -> None:
    handle = runtime.open()
    handle.append([("ab", "text")])
    first = handle.generate(SamplingParams(max_new_tokens=4, return_logprob=True, n=2))
    handle.append([("cd", "text")])
    second = handle.generate(PARAMS)
    metas = _done(first).meta
    assert len(metas) == 2
    assert metas[0]["prompt_token_ids"] == _ids("ab")
    assert metas[0]["output_token_ids"] == _ids("len=")
    assert metas[0]["finish_reason"] == "length"
    assert metas[0]["prompt_tokens"] == 2
    assert metas[0]["completion_tokens"] == metas[0]["output_token_logprobs_length"] == 4
    assert metas[0]["output_token_logprobs"][0] == (-1.0, ord("l"), "x")
    assert metas[0]["output_top_logprobs"][0] == [(-1.0, ord("l"), "x")]
    assert _done(second).meta[0]["prompt_token_ids"] == _ids("ablen=cd")


def test_nothing_waits_for_a_result_before_the_next_operation(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open()
    handle.append([("a", "text")])
    calls = []
    for _ in range(5):
        calls.append(handle.generate(PARAMS))
        handle.append([("b", "text")])
    assert _kinds(sent).count("generate") == 5
    assert [_done(c).meta[0]["prompt_tokens"] for c in calls] == [1, 7, 13, 19, 25]


def test_an_empty_path_starts_from_one_token_as_context(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open()
    end = runtime.tokenizer.eos_ids[0]
    assert _done(handle.generate(PARAMS)).text == "len=1"
    assert sent[1]["ids"] == [end]
    second = _done(handle.generate(PARAMS))  # Not empty any more.
    assert _kinds(sent) == ["open", "append", "generate", "generate"]
    assert second.meta[0]["prompt_token_ids"] == [end, *_ids("len=1")]


def test_text_after_ids_is_encoded_as_their_continuation(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    encode = runtime.tokenizer.encode

    def record(pieces: Any, *, continuation: bool = False) -> list[int]:
        seen.append(continuation)
        return encode(pieces, continuation=continuation)

    monkeypatch.setattr(runtime.tokenizer, "encode", record)
    handle = runtime.open()
    for text in "ab":
        handle.append([(text, "text")])
        handle.generate(PARAMS)
    other = runtime.open()
    other.append_ids([9])
    other.append([("c", "text")])
    _done(other.generate(PARAMS))
    assert seen == [False, True, True]
    assert other.ids()[:2] == [9, ord("c")]


def test_children_inherit_pending_text_and_name_their_branch(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    root = runtime.open()
    root.append([("ab", "text")])
    children = root.fork(2)
    more = root.fork(1)
    grandchild = children[1].fork(1)[0]
    branches = [h.branch for h in (root, *children, *more, grandchild)]
    assert branches == ["", "0", "1", "2", "1.0"]
    assert _kinds(sent) == ["open", "fork", "fork", "fork"]
    children[0].append([("x", "text")])
    results = [_done(h.generate(PARAMS)) for h in (children[0], children[1], root)]
    assert [r.text for r in results] == ["len=3", "len=2", "len=2"]
    assert children[0].ids() == _ids("abxlen=3")
    assert grandchild.ids() == []


def test_a_fork_behind_a_call_in_flight_starts_where_it_ends(runtime: Runtime) -> None:
    root = runtime.open()
    root.append([("ab", "text")])
    root.generate(PARAMS)
    child = root.fork(1)[0]
    child.append([("c", "text")])
    assert _done(child.generate(PARAMS)).meta[0]["prompt_token_ids"] == _ids("ablen=2c")


def test_keys_depend_on_seed_branch_call_and_sample(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    root = runtime.open(seed=11)
    child = root.fork(1)[0]
    for handle, seed in ((root, None), (root, 5), (child, None)):
        _done(handle.generate(SamplingParams(max_new_tokens=1, n=2, seed=seed)))
    keys = [op["keys"] for op in sent if op["op"] == "generate"]
    assert keys == [
        [stream_key(11, "", 0, 0), stream_key(11, "", 0, 1)],
        [stream_key(5, "", 1, 0), stream_key(5, "", 1, 1)],
        [stream_key(11, "0", 0, 0), stream_key(11, "0", 0, 1)],
    ]


def test_unseeded_programs_differ_and_follow_the_runtimes_seed() -> None:
    def seeds(seed: int) -> list[int]:
        with start_runtime(seed=seed) as runtime:
            return [runtime.open().program.seed for _ in range(3)]

    assert seeds(1) == seeds(1)
    assert len({*seeds(1), *seeds(2)}) == 6


def test_select_sends_the_border_and_gives_the_choice(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open(seed=4)
    handle.append([("a:", "text")])
    result = _done(handle.select(["no", "yé"], "token_length_normalized", site="here"))
    assert _kinds(sent) == ["open", "append", "score"]
    assert sent[1]["ids"] == _ids("a:")
    assert sent[2]["key"] == stream_key(4, "", 0, 0)
    assert sent[2]["choices"][0] == {"ids": _ids("no"), "first": 0, "append": _ids("no")}
    assert (result.index, result.text) == (1, "yé")
    assert handle.ids() == _ids("a:yé")
    meta = result.meta[0]
    assert meta["prompt_token_ids"] == _ids("a:")
    assert [c["text"] for c in meta["choices"]] == ["no", "yé"]
    assert meta["choices"][1]["token_ids"] == _ids("yé")
    assert "".join(meta["choices"][1]["tokens"]) == "yé"
    assert meta["choices"][1]["logprobs"] == [-0.5] * 3
    assert meta["choices"][1]["score"] == meta["scores"][1] == 1.0


def test_select_on_an_empty_path_has_context_too(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open()
    _done(handle.select(["a", "b"], "greedy_token_selection"))
    assert sent[1]["ids"] == [runtime.tokenizer.eos_ids[0]]
    assert sent[2]["prefix"] == []  # This tokenizer adds no BOS to a prompt.


@pytest.mark.parametrize(
    ("choices", "method", "temperature", "name"),
    [
        ([], "token_length_normalized", 0.0, "choices"),
        (["a", "a"], "token_length_normalized", 0.0, "choices"),
        (["a", 3], "token_length_normalized", 0.0, "choices"),
        (["a"], "longest", 0.0, "choices_method"),
        (["a"], "exact_likelihood", -1.0, "temperature"),
        (["a"], "exact_likelihood", float("nan"), "temperature"),
    ],
)
def test_a_selection_that_cannot_be_changes_nothing(
    runtime: Runtime,
    sent: list[dict[str, Any]],
    choices: list[str],
    method: str,
    temperature: float,
    name: str,
) -> None:
    handle = runtime.open()
    with pytest.raises(InvalidArgument, match=name):
        handle.select(choices, method, temperature=temperature)
    assert sent == []
    assert _done(handle.generate(PARAMS)).text == "len=1"


def test_bad_arguments_are_refused_before_anything_is_sent(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open()
    with pytest.raises(InvalidArgument, match="surrogate"):
        handle.append([("ok", "text"), ("\ud800", "text")])
    with pytest.raises(InvalidArgument, match="kind='secret'"):
        handle.append([("x", "secret")])
    with pytest.raises(InvalidArgument, match="stop_token_ids: 9999"):
        handle.generate(SamplingParams(stop_token_ids=(9999,)))
    for n in (0, -1, True, 1.5):
        with pytest.raises(InvalidArgument, match="n="):
            handle.fork(n)  # type: ignore[arg-type]
    assert sent == []
    assert handle.ids() == []


def test_a_prompt_that_is_certainly_too_long_is_refused_at_once() -> None:
    with start_runtime(max_context=10) as runtime:
        handle = runtime.open()
        handle.append([("x" * 8, "text")])
        handle.generate(PARAMS)
        handle.append([("yyy", "text")])
        with pytest.raises(ContextOverflow, match="11 tokens; the context holds 10"):
            handle.generate(PARAMS)
        with pytest.raises(ContextOverflow, match="11 tokens"):
            handle.select(["a"], "greedy_token_selection")


def test_a_closed_handle_takes_nothing_but_its_calls_go_on(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open()
    call = handle.generate(PARAMS)
    handle.close()
    handle.close()
    assert _kinds(sent)[-2:] == ["generate", "close"]
    assert _done(call).text == "len=1"
    uses = (
        lambda: handle.append([("x", "text")]),
        lambda: handle.append_ids([1]),
        lambda: handle.generate(PARAMS),
        lambda: handle.select(["a"], "greedy_token_selection"),
        lambda: handle.fork(1),
    )
    for use in uses:
        with pytest.raises(ProgramError, match="closed"):
            use()
    assert len(handle.ids()) == 6


def test_a_handle_that_was_never_used_sends_nothing(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    runtime.open().close()
    assert sent == []


def test_a_dropped_handle_frees_its_context_and_keeps_its_call(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    call = runtime.open().generate(PARAMS)
    gc.collect()
    assert _kinds(sent)[-1] == "close"
    assert _done(call).text == "len=1"


def test_a_handle_keeps_its_runtime_alive() -> None:
    handle: Handle = start_runtime().open()
    gc.collect()
    assert _done(handle.generate(PARAMS)).text == "len=1"
    del handle
    gc.collect()  # And with the last handle it ends, as the fixture checks.


def test_the_program_is_named_and_a_label_goes_with_the_call(
    runtime: Runtime, sent: list[dict[str, Any]]
) -> None:
    handle = runtime.open(name="qa")
    assert handle.program.name == "qa"
    handle.append([("a", "text")])
    _done(handle.generate(PARAMS, label=(2, 5)))
    _done(handle.select(["x", "y"], "token_length_normalized", label=(3, 0)))
    _done(handle.generate(PARAMS))
    assert [op["name"] for op in sent if op["op"] == "open"] == ["qa"]
    calls = [op for op in sent if op["op"] in ("generate", "score")]
    assert [(op.get("depth"), op.get("remaining")) for op in calls] == [
        (2, 5),
        (3, 0),
        (None, None),
    ]
    with pytest.raises(InvalidArgument, match="name"):
        runtime.open(name=3)  # type: ignore[arg-type]


def test_join_says_whom_the_parent_waits_for(runtime: Runtime, sent: list[dict[str, Any]]) -> None:
    parent = runtime.open()
    parent.append([("ab", "text")])
    children = parent.fork(3)
    parent.join(children)
    parent.join([])
    fork, join = sent[-2:]
    assert fork["op"] == "fork"
    assert join == {**fork, "op": "join"}
    (grandchild,) = children[0].fork(1)
    for handle, others in ((parent, [grandchild]), (children[0], children), (parent, [parent])):
        with pytest.raises(InvalidArgument, match="is no fork of"):
            handle.join(others)
    with pytest.raises(InvalidArgument, match="is no fork of"):
        parent.join(runtime.open().fork(1))


def test_abort_ends_this_contexts_calls(runtime: Runtime) -> None:
    handle, other = runtime.open(), runtime.open()
    calls = [handle.generate(PARAMS, stream=False, site="hang") for _ in range(2)]
    kept = other.generate(PARAMS)
    handle.abort()
    assert all(isinstance(call.exception(20), Cancelled) for call in calls)
    assert _done(kept).text == "len=1"
    with pytest.raises(Cancelled):
        handle.ids()


def test_a_stream_joins_to_the_text(runtime: Runtime) -> None:
    handle = runtime.open()
    call = handle.generate(SamplingParams(), stream=True, site="")
    chunks = list(call.chunks())
    assert "".join(chunk.text for chunk in chunks) == _done(call).text == "len=1 é"
    assert all(chunk.text for chunk in chunks)
    assert chunks[-1].ids == list("é".encode())


def test_a_handle_may_be_used_from_many_threads(runtime: Runtime) -> None:
    handle = runtime.open()
    calls: list[Call[CallResult]] = []

    def work() -> None:
        for _ in range(20):
            handle.append([("x", "text")])
            calls.append(handle.generate(SamplingParams(max_new_tokens=1)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for call in calls:
        _done(call)
    assert handle.ids().count(ord("x")) == 80
    assert handle.ids().count(ord("l")) == 80
