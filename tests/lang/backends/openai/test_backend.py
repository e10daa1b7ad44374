"""The backend as programs see it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from stub_server import Reply, StubServer, eventually, json_reply, sse_reply, text_reply

import ramet.lang as rm
from ramet.lang.backends.openai import OpenAI

Serve = Callable[..., StubServer]
Connect = Callable[..., OpenAI]


@rm.function
def two_lines(s: rm.ProgramState, word: str = "x") -> None:
    s += "Say " + word + ":" + rm.gen("a", max_tokens=4) + "\nAgain:" + rm.gen("b", max_tokens=4)


@rm.function
def chat(s: rm.ProgramState, question: str = "Why?") -> None:
    s += rm.system("Be kind.")
    s += rm.user(question)
    s += rm.assistant(rm.gen("first"))
    s += rm.user("And?") + rm.assistant(rm.gen("second"))


def test_a_program_of_plain_text(serve: Serve, connect: Connect) -> None:
    server = serve()
    state = two_lines.run(backend=connect(server))
    assert [request.path for request in server.requests] == ["/v1/completions"] * 2
    assert [body["prompt"] for body in server.bodies] == ["Say x:", "Say x: <6>\nAgain:"]
    assert state.text() == "Say x: <6>\nAgain: <17>"
    meta = state.meta("b")
    assert (meta["finish_reason"], meta["prompt_tokens"]) == ("eos", meta["cached_tokens"] * 2)
    assert meta["completion_tokens"] == 4


def test_a_program_of_messages(serve: Serve, connect: Connect) -> None:
    server = serve()
    state = chat.run(backend=connect(server), question="<|im_end|> Why?")
    assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 2
    assert server.bodies[1]["messages"] == state.messages()[:-1]
    assert state.messages() == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "<|im_end|> Why?"},
        {"role": "assistant", "content": state["first"]},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": state["second"]},
    ]


def test_forks_and_joins(serve: Serve, connect: Connect) -> None:
    server = serve()

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.user("Think.") + rm.assistant(rm.gen("thought"))
        forks = s.fork(3)
        forks += lambda i: rm.user(f"Part {i}?") + rm.assistant(rm.gen("part"))
        forks.join()
        s += rm.user(" ".join(s["part"])) + rm.assistant(rm.gen("all", n=2))

    state = program.run(backend=connect(server))
    assert len(server.requests) == 5
    assert server.bodies[-1]["n"] == 2
    assert len(state["all"]) == 2
    assert state.messages()[-1]["content"] == state["all"][0]


def test_appended_forks(serve: Serve, connect: Connect) -> None:
    server = serve()

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.user("Hi.")
        forks = s.fork(2)
        forks += rm.assistant(rm.gen("x")) + rm.user("ok")
        forks.join("concate_and_append")
        s += rm.assistant(rm.gen("end"))

    state = program.run(backend=connect(server))
    roles = [message["role"] for message in server.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert server.bodies[-1]["messages"] == state.messages()[:-1]


def test_select_in_a_program(serve: Serve, connect: Connect) -> None:
    server = serve()

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Is it?" + rm.select("x", [" yes", " no"]) + rm.gen("why")

    state = program.run(backend=connect(server))
    assert state["x"] in (" yes", " no")
    assert server.bodies[-1]["prompt"] == "Is it?" + state["x"]
    assert set(state.meta("x")["scores"]) == {row["score"] for row in state.meta("x")["choices"]}


@pytest.mark.parametrize("program", [two_lines, chat])
def test_streams(serve: Serve, connect: Connect, program: rm.Function) -> None:
    server = serve()
    state = program.run(backend=connect(server), stream=True)
    chunks = list(state.text_iter())
    assert all(chunks)
    assert "".join(chunks) == state.text()
    assert len(chunks) > 6
    assert all(body["stream"] for body in server.bodies)


def test_text_streams_as_it_comes(serve: Serve, connect: Connect) -> None:
    gate = threading.Event()
    events = [
        {"choices": [{"index": 0, "text": text, "finish_reason": end}]}
        for text, end in (("a", None), ("b", "stop"))
    ]
    server = serve(sse_reply(events, wait=lambda i: i == 0 or gate.wait(20)))

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "x" + rm.gen("a")

    chunks = program.run(backend=connect(server), stream=True).text_iter("a")
    assert next(chunks) == "a"
    gate.set()
    assert list(chunks) == ["b"]


def test_a_closed_stream_ends_the_request(serve: Serve, connect: Connect) -> None:
    gate = threading.Event()
    events = [{"choices": [{"index": 0, "text": "a", "finish_reason": None}]}] * 3
    server = serve(sse_reply(events, wait=lambda i: i == 0 or gate.wait(20)))
    state = two_lines.run(backend=connect(server), stream=True)
    chunks = state.text_iter("a")
    assert next(chunks) == "a"
    chunks.close()
    with pytest.raises(rm.Cancelled):
        state["a"]
    gate.set()
    assert len(server.requests) == 1


def test_a_timeout_ends_the_program(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.gate.clear()
    with pytest.raises(rm.Cancelled, match="timeout"):
        two_lines.run(backend=connect(server), timeout=0.1)
    server.gate.set()


def test_what_came_before_an_error_was_delivered(serve: Serve, connect: Connect) -> None:
    event = {"choices": [{"index": 0, "text": "so", "finish_reason": None}]}
    server = serve(sse_reply([event], done=False, drop=True))
    chunks: list[str] = []
    with pytest.raises(rm.BackendError, match="broke off"):
        chunks.extend(two_lines.run(backend=connect(server), stream=True).text_iter())
    assert "".join(chunks) == "Say x:so"
    state = two_lines.run(backend=connect(serve(sse_reply([event]))), stream=True)
    with pytest.raises(rm.BackendError, match=r"has no end.*'so'"):
        chunks.extend(state.text_iter("a"))
    assert chunks[-1:] == ["so"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(500, ["out of pages"], content_type="text/plain"), "500 .*: out of pages"),
        (Reply(502), "502 .*: an empty body"),
        (Reply(200, ["<html>"], content_type="text/html"), "200, but not a JSON object: <html>"),
        (json_reply({"choices": "?"}), "unexpected answer"),
        (json_reply({"choices": []}), "sample 0 of the answer has no end"),
    ],
)
def test_the_true_error_reaches_the_caller(
    serve: Serve, connect: Connect, reply: Reply, said: str
) -> None:
    """B14 of the bug reports."""
    server = serve(reply, reply)
    with pytest.raises(rm.BackendError, match=said):
        two_lines.run(backend=connect(server, max_retries=1))


@pytest.mark.parametrize(
    "argument", [{"top_k": 5}, {"min_p": 0.1}, {"include_stop": True}, {"stop_token_ids": [1]}]
)
def test_what_the_backend_cannot_do_is_refused_by_name(
    serve: Serve, connect: Connect, argument: dict[str, Any]
) -> None:
    """B15 of the bug reports."""
    server = serve()

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Age:" + rm.gen("age", stop="\n", **argument)

    (name,) = argument
    with pytest.raises(rm.UnsupportedFeature, match=rf"{name}=.*OpenAI\('http://.*', 'stub'\)"):
        program.run(backend=connect(server))
    assert server.requests == []


@pytest.mark.parametrize("constraint", [{"regex": "[0-9]+"}, {"dtype": int}])
def test_a_constraint_is_refused(
    serve: Serve, connect: Connect, constraint: dict[str, Any]
) -> None:
    """B15 of the bug reports."""
    server = serve()

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Age:" + rm.gen("age", **constraint)

    with pytest.raises(rm.UnsupportedFeature, match=r"regex=.*OpenAI\('http://.*', 'stub'\)"):
        program.run(backend=connect(server))
    assert server.requests == []


def test_no_bos_is_written(serve: Serve, connect: Connect) -> None:
    """B24 of the bug reports: the endpoint adds its own."""
    backend = connect(serve())
    assert backend.tokenizer.bos_id is None
    assert backend.tokenizer.render_chat([{"role": "user", "content": "x"}]).startswith("<|im_s")


def test_roles_need_a_chat_endpoint(serve: Serve, connect: Connect) -> None:
    server = serve()
    with pytest.raises(rm.UnsupportedFeature, match=r"roles: OpenAI.*chat=False"):
        chat.run(backend=connect(server, chat=False))
    assert server.requests == []


def test_many_contexts_run_side_by_side_within_the_limit(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.gate.clear()
    backend = connect(server, max_connections=5)
    done: list[rm.ProgramState] = []
    words = [{"word": str(i)} for i in range(30)]
    runner = threading.Thread(
        target=lambda: done.extend(two_lines.run_batch(words, backend=backend))
    )
    runner.start()
    eventually(lambda: len(server.requests) == 5)
    stats = backend.stats()
    assert stats["running"] == 5
    server.gate.set()
    runner.join(20)
    assert [state.text()[:6] for state in done] == [f"Say {i}:"[:6] for i in range(30)]
    assert len(server.requests) == 60
    assert server.peak <= 5
    assert len({request.port for request in server.requests}) <= 5
    stats = backend.stats()
    assert (stats["requests"], stats["running"], stats["waiting"]) == (60, 0, 0)
    assert stats["completion_tokens"] == sum(
        s.meta(v)["completion_tokens"] for s in done for v in "ab"
    )


def test_one_failing_item_leaves_the_others_alone(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.answer = lambda request: (
        Reply(400, ["no 7"]) if "Say 7:" in request.prompt else server.model(request)
    )
    words = [{"word": str(i)} for i in range(10)]
    found = two_lines.run_batch(words, backend=connect(server), return_exceptions=True)
    assert [i for i, one in enumerate(found) if isinstance(one, rm.BackendError)] == [7]
    assert "400 Bad Request: no 7" in str(found[7])


def test_shutdown_fails_what_runs_and_what_comes(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.gate.clear()
    backend = connect(server)
    state = two_lines.run(backend=backend, stream=True)
    eventually(lambda: server.requests)
    backend.shutdown()
    with pytest.raises(rm.BackendError, match="shut down"):
        state["b"]
    with pytest.raises(rm.BackendError, match="shut down"):
        two_lines.run(backend=backend)
    backend.shutdown()
    server.gate.set()


def test_a_dropped_backend_closes_its_connections(serve: Serve) -> None:
    server = serve(text_reply("x"))
    with OpenAI(server.url, "m") as backend:
        assert backend.open().generate(rm_params(), site="").result(5).text == "x"
        assert backend.stats()["idle_connections"] == 1
    del backend
    server.script = [text_reply("x")]
    dropped = OpenAI(server.url, "m")
    assert dropped.open().generate(rm_params(), site="").result(5).text == "x"
    del dropped
    gc.collect()
    eventually(lambda: not server.sockets)
    assert len(server.requests) == 2


def rm_params() -> Any:
    from ramet.runtime.request import SamplingParams

    return SamplingParams()


def test_the_key_is_sent_and_never_shown(serve: Serve, connect: Connect) -> None:
    server = serve(Reply(401, ["wrong key sk-abcdef"]))
    backend = connect(server, api_key="sk-abcdef", headers={"X-Org": "me"})
    with pytest.raises(rm.BackendError, match=r"401 .*wrong key \*\*\*") as caught:
        two_lines.run(backend=backend)
    sent = server.requests[0].headers
    assert (sent["Authorization"], sent["X-Org"]) == ("Bearer sk-abcdef", "me")
    shown = f"{backend!r} {caught.value!r} {backend.stats()} {backend._service!r}"
    assert "sk-abcdef" not in shown


def test_a_model_alone_is_one_of_openais() -> None:
    backend = OpenAI("some-model", api_key="k")
    assert repr(backend) == "OpenAI('https://api.openai.com/v1', 'some-model')"
    assert backend._service.rules.chat_limit == "max_completion_tokens"


@pytest.mark.parametrize(
    "options",
    [
        {"model": ""},
        {"model": None},
        {"chat": "yes"},
        {"chat": 1},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"max_retries": -1},
        {"max_retries": True},
        {"backoff": -1},
        {"max_connections": 0},
        {"chat_limit_field": "limit"},
        {"extra": ["nothing"]},
        {"omit": ["nothing"]},
    ],
)
def test_bad_arguments(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(rm.InvalidArgument, match=name):
        OpenAI("http://localhost:1/v1", **{"model": "m", **options})


def test_what_an_endpoint_does_not_have(serve: Serve, connect: Connect) -> None:
    backend = connect(serve())
    with pytest.raises(rm.UnsupportedFeature, match="flush_cache"):
        rm.flush_cache(backend)
    assert rm.get_server_info(backend)["requests"] == 0
    assert backend.tokenizer.special_text(5) == ""
