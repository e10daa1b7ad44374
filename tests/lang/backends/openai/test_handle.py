from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stub_server import Reply, Request, StubServer, json_reply, sse_reply, text_reply, tokens_of

from ramet.lang.backends.openai import OpenAI
from ramet.lang.errors import (
    BackendError,
    InvalidArgument,
    ProgramError,
    UnsupportedFeature,
)
from ramet.runtime.request import SamplingParams

Serve = Callable[..., StubServer]
Connect = Callable[..., OpenAI]
USER, ASSISTANT, END = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"
LINE = {"stop": "\n", "max_tokens": 8}


def params(**values: Any) -> SamplingParams:
    return SamplingParams.build(values)


def text(handle: Any, text: str, kind: str = "text") -> None:
    handle.append([(text, kind)])


def test_a_call_waits_for_the_one_before_it(serve: Serve, connect: Connect) -> None:
    server = serve(text_reply("1"), text_reply("2"))
    handle = connect(server).open()
    text(handle, "a")
    first = handle.generate(params(), site="f:1")
    text(handle, "b")
    second = handle.generate(params(), site="f:2")
    assert (first.result(5).text, second.result(5).text) == ("1", "2")
    assert [body["prompt"] for body in server.bodies] == ["a", "a1b"]


def test_forks_go_on_from_a_call_in_flight(serve: Serve, connect: Connect) -> None:
    server = serve(say=lambda request: "!")
    server.gate.clear()
    handle = connect(server).open()
    text(handle, "a")
    handle.generate(params(), site="f:1")
    text(handle, "b")
    forks = handle.fork(2)
    deeper = forks[1].fork(1)[0]
    for index, fork in enumerate([*forks, deeper]):
        text(fork, str(index))
    calls = [fork.generate(params(), site="f:2") for fork in [*forks, deeper]]
    handle.close()
    server.gate.set()
    assert [call.result(5).text for call in calls] == ["!"] * 3
    assert sorted(body["prompt"] for body in server.bodies) == ["a", "a!b0", "a!b1", "a!b2"]
    assert [fork.branch for fork in [*forks, deeper]] == ["0", "1", "1.0"]


def test_messages(serve: Serve, connect: Connect) -> None:
    server = serve(say=lambda request: "hello")
    handle = connect(server).open()
    text(handle, USER)
    text(handle, "hi <|im_end|>", "content")
    text(handle, END + ASSISTANT)
    handle.generate(params(), site="f:1").result(5)
    text(handle, "!", "content")
    text(handle, END + USER + END + ASSISTANT)
    handle.generate(params(), site="f:2").result(5)
    assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 2
    first = [{"role": "user", "content": "hi <|im_end|>"}]
    assert [body["messages"] for body in server.bodies] == [
        first,
        [*first, {"role": "assistant", "content": "hello!"}, {"role": "user", "content": ""}],
    ]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([("hi", "text"), (USER + END + ASSISTANT, "text")], "'hi' stands outside"),
        ([(USER + END, "text")], "outside of a message; put it into assistant"),
        ([(USER, "text")], "in a user message"),
        ([(ASSISTANT, "text"), ("So", "content")], "has text before the call"),
        ([(USER + "<|x|>" + END + ASSISTANT, "text")], r"special\('<\|x\|>'\)"),
    ],
)
def test_what_a_chat_endpoint_cannot_take_is_refused_before_any_request(
    serve: Serve, connect: Connect, pieces: list[tuple[str, str]], said: str
) -> None:
    server = serve()
    handle = connect(server).open()
    handle.append(pieces)
    with pytest.raises(UnsupportedFeature, match=rf"gen at f:1: OpenAI\(.*{said}"):
        handle.generate(params(), site="f:1")
    assert server.requests == []


def test_plain_text_for_a_chat_endpoint_is_refused(serve: Serve, connect: Connect) -> None:
    handle = connect(serve(), chat=True).open()
    text(handle, "hi")
    with pytest.raises(UnsupportedFeature, match="'hi' stands outside of the messages"):
        handle.generate(params(), site="f:1")


def test_a_completions_endpoint_gets_markers_as_text(serve: Serve, connect: Connect) -> None:
    server = serve()
    handle = connect(server, chat=False).open()
    text(handle, USER + "hi")
    handle.generate(params(), site="f:1").result(5)
    assert server.bodies[0]["prompt"] == USER + "hi"


def test_a_message_that_begins_with_text_can_be_continued_where_the_server_can(
    serve: Serve, connect: Connect
) -> None:
    server = serve()
    handle = connect(server, extra=["continue_final_message"]).open()
    handle.append([(USER + END + ASSISTANT, "text"), ("So", "content")])
    handle.generate(params(), site="f:1").result(5)
    body = server.bodies[0]
    assert body["messages"][-1] == {"role": "assistant", "content": "So"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_seeds_differ_by_branch_and_call_and_repeat(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect(server)

    def seeds(program: int | None, **given: Any) -> list[int | None]:
        server.requests.clear()
        handle = backend.open(seed=program)
        for one in (handle, handle, *handle.fork(2)):
            one.generate(params(**given), site="f:1").result(5)
        return [body.get("seed") for body in server.bodies]

    first = seeds(7)
    assert len(set(first)) == 4
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in first)
    assert seeds(7) == first
    assert seeds(8) != first
    assert seeds(None) == [None] * 4
    assert seeds(8, seed=7) == first == seeds(None, seed=7)


def test_select(serve: Serve, connect: Connect) -> None:
    server = serve()
    handle = connect(server).open()
    text(handle, "Is it so? ")
    choices = ["yes", "no", "maybe not"]
    call = handle.select(choices, "token_length_normalized", temperature=0.0, site="f:1")
    text(handle, "!")
    after = handle.generate(params(), site="f:2")
    result = call.result(5)
    assert server.bodies[0] == {
        "model": "stub",
        "prompt": [f"Is it so? {choice}" for choice in choices],
        "max_tokens": 1,
        "temperature": 0,
        "echo": True,
        "logprobs": 1,
    }
    meta = result.meta[0]
    assert result.text == choices[meta["index"]] == choices[result.index]
    assert meta["scores"][meta["index"]] == max(meta["scores"])
    assert [row["text"] for row in meta["choices"]] == choices
    assert ["".join(row["tokens"]) for row in meta["choices"]] == choices
    assert meta["prompt_tokens"] == 10
    after.result(5)
    assert server.bodies[1]["prompt"] == f"Is it so? {result.text}!"


def test_select_without_the_prompt(serve: Serve, connect: Connect) -> None:
    server = serve()
    handle = connect(server).open()
    text(handle, "So:")
    result = handle.select(
        [" a b", " c"], "unconditional_likelihood_normalized", temperature=0.0, site="f:1"
    ).result(5)
    assert server.bodies[1]["prompt"] == [" a b", " c"]
    rows = result.meta[0]["choices"]
    assert [row["unconditional_logprobs"][0] for row in rows] == [None, None]
    assert result.meta[0]["prompt_tokens"] == 20


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(400, ["echo with logprobs is not supported"]), "400 .*echo with logprobs is not"),
        (text_reply("x"), "doesn't report"),
    ],
)
def test_select_where_the_endpoint_does_not_offer_it(
    serve: Serve, connect: Connect, reply: Reply, said: str
) -> None:
    handle = connect(serve(reply)).open()
    text(handle, "a")
    call = handle.select(["b"], "exact_likelihood", temperature=0.0, site="f:1")
    with pytest.raises(UnsupportedFeature, match=f"select: OpenAI.*{said}"):
        call.result(5)


def test_select_on_messages_is_refused(serve: Serve, connect: Connect) -> None:
    server = serve()
    handle = connect(server).open()
    text(handle, USER + END + ASSISTANT)
    with pytest.raises(UnsupportedFeature, match=r"select at f:1: .*chat API"):
        handle.select(["a"], "exact_likelihood", temperature=0.0, site="f:1")
    plain = connect(server).open()
    with pytest.raises(UnsupportedFeature, match='the choice ""'):
        plain.select(["a", ""], "exact_likelihood", temperature=0.0, site="f:1")
    assert server.requests == []


def test_a_server_that_fails_a_select_is_no_missing_feature(serve: Serve, connect: Connect) -> None:
    handle = connect(serve(Reply(500, ["down"])), max_retries=0).open()
    text(handle, "a")
    with pytest.raises(BackendError, match=r"500 .*down"):
        handle.select(["b"], "exact_likelihood", temperature=0.0, site="f:1").result(5)


def test_a_closed_context_takes_nothing(serve: Serve, connect: Connect) -> None:
    handle = connect(serve()).open()
    handle.close()
    handle.close()
    for action in (
        lambda: text(handle, "a"),
        lambda: handle.generate(params(), site=""),
        lambda: handle.fork(1),
    ):
        with pytest.raises(ProgramError, match="closed"):
            action()


def test_bad_arguments(serve: Serve, connect: Connect) -> None:
    handle = connect(serve()).open()
    with pytest.raises(InvalidArgument, match="surrogate"):
        text(handle, "\ud800")
    with pytest.raises(InvalidArgument, match="kind"):
        text(handle, "a", "markup")
    with pytest.raises(InvalidArgument, match="n=0"):
        handle.fork(0)


BOOK = " Rome\nPopulation: 3 million\nRiver: Tiber\nThat is all there is to say of it."


def continues(book: str) -> Callable[[Request], str]:
    """A model that goes on with a text it has learned, wherever the prompt stops."""
    return lambda request: (
        book[len(request.prompt) :] if book.startswith(request.prompt) else " new\n"
    )


def test_one_longer_call_answers_several(serve: Serve, connect: Connect) -> None:
    server = serve(say=continues("City:" + BOOK))
    handle = connect(server).open(num_api_spec_tokens=20)
    calls = []
    for literal in ("City:", "\nPopulation:", "\nRiver:"):
        text(handle, literal)
        calls.append(handle.generate(params(**LINE), stream=True, site="f:1"))
    assert [call.result(5).text for call in calls] == [" Rome", " 3 million", " Tiber"]
    assert ["".join(chunk.text for chunk in call.chunks()) for call in calls] == [
        " Rome",
        " 3 million",
        " Tiber",
    ]
    (body,) = server.bodies
    assert (body["prompt"], body["max_tokens"], "stop" in body) == ("City:", 20, False)
    metas = [call.result().meta[0] for call in calls]
    assert [meta["speculated"] for meta in metas] == [False, True, True]
    assert [meta["finish_reason"] for meta in metas] == ["stop"] * 3
    assert [meta["completion_tokens"] for meta in metas] == [1, 2, 1]


def test_another_literal_needs_another_call(serve: Serve, connect: Connect) -> None:
    server = serve(say=continues("City:" + BOOK))
    handle = connect(server).open(num_api_spec_tokens=20)
    values = []
    for literal in ("City:", "\nMayor:", "\nRiver:"):
        text(handle, literal)
        values.append(handle.generate(params(**LINE), site="f:1").result(5).text)
    assert values == [" Rome", " new", " new"]
    assert [body["prompt"] for body in server.bodies] == [
        "City:",
        "City: Rome\nMayor:",
        "City: Rome\nMayor: new\nRiver:",
    ]


@pytest.mark.parametrize("spec", [None, 1, 3, 5, 100])
def test_speculation_never_changes_the_text_of_a_model_that_does_not_sample(
    serve: Serve, connect: Connect, spec: int | None
) -> None:
    server = serve(say=continues("City:" + BOOK))
    handle = connect(server).open(num_api_spec_tokens=spec)
    values = []
    for literal, given in (
        ("City:", LINE),
        ("\nPopulation:", {**LINE, "max_tokens": 1}),
        (" million", LINE),
        ("\nRiver:", {"max_tokens": 3}),
        ("", {"max_tokens": 50}),
    ):
        text(handle, literal)
        values.append(handle.generate(params(**given), site="f:1").result(5).text)
    rest = BOOK[BOOK.index(" Tiber") :]
    three = "".join(tokens_of(rest)[:3])
    assert values == [" Rome", " 3", "", three, rest[len(three) :]]


def test_forks_do_not_share_what_was_written_ahead(serve: Serve, connect: Connect) -> None:
    server = serve(say=continues("City:" + BOOK))
    handle = connect(server).open(num_api_spec_tokens=20)
    text(handle, "City:")
    handle.generate(params(**LINE), site="f:1")
    for fork in handle.fork(2):
        text(fork, "\nPopulation:")
        assert fork.generate(params(**LINE), site="f:1").result(5).text == " 3 million"
    assert len(server.requests) == 3


def test_without_tokens_speculation_falls_back(serve: Serve, connect: Connect) -> None:
    server = serve(text_reply(" Rome\nX"), sse_reply(
        [{"choices": [{"index": 0, "text": " Rome", "finish_reason": "stop"}]}]
    ))  # fmt: skip
    handle = connect(server).open(num_api_spec_tokens=20)
    text(handle, "City:")
    call = handle.generate(params(**LINE), stream=True, site="f:1")
    assert [chunk.text for chunk in call.chunks()] == [" Rome"]
    assert ["stop" in body for body in server.bodies] == [False, True]


def test_speculation_is_for_completions(serve: Serve, connect: Connect) -> None:
    server = serve(json_reply({}))
    handle = connect(server).open(num_api_spec_tokens=5)
    text(handle, USER + END + ASSISTANT)
    with pytest.raises(UnsupportedFeature, match="num_api_spec_tokens=5: only for completions"):
        handle.generate(params(), site="f:1")
    with pytest.raises(InvalidArgument, match="num_api_spec_tokens=0"):
        connect(server).open(num_api_spec_tokens=0)
