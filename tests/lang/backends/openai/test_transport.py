from __future__ import annotations

import email.utils
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stub_server import Reply, StubServer, json_reply, sse_reply

from ramet.lang.backends.openai import transport
from ramet.lang.backends.openai.address import Endpoint, check_headers, parse_base_url
from ramet.lang.backends.openai.transport import EndpointError, HttpClient, Ticket
from ramet.lang.errors import BackendError, Cancelled

Serve = Callable[..., StubServer]
Post = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def client_of(serve: Serve) -> Iterator[Callable[..., HttpClient]]:
    clients: list[HttpClient] = []

    def make(url: str, *, key: str | None = None, **options: Any) -> HttpClient:
        values = {"timeout": 20.0, "max_retries": 3, "backoff": 0.001, **options}
        endpoint = Endpoint(*parse_base_url(url), *check_headers(key, {}), **values)
        clients.append(HttpClient(endpoint, 4))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def post(client: HttpClient, ticket: Ticket | None = None) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = []
    client.post("/completions", {"prompt": "é"}, ticket or Ticket(), taken.append)
    return taken


def test_one_answer(serve: Serve, client_of: Any) -> None:
    server = serve(json_reply({"a": "ü"}))
    assert post(client_of(server.url, key="sk-test")) == [{"a": "ü"}]
    request = server.requests[0]
    assert (request.path, request.body) == ("/v1/completions", {"prompt": "é"})
    assert request.headers["Authorization"] == "Bearer sk-test"


def test_connections_are_kept(
    serve: Serve, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "END_SECONDS", 5.0)
    server = serve(
        json_reply({}),
        sse_reply([{"a": 1}, {"b": 2}]),
        json_reply({}, chunked=True),
        json_reply({}),
    )
    client = client_of(server.url)
    assert [post(client) for _ in range(4)] == [[{}], [{"a": 1}, {"b": 2}], [{}], [{}]]
    assert len({request.port for request in server.requests}) == 1
    assert client.num_idle == 1
    client.close()
    assert client.num_idle == 0


def test_a_kept_connection_that_the_server_closed_costs_no_retry(
    serve: Serve, client_of: Any
) -> None:
    server = serve(json_reply({"a": 1}, drop=True), json_reply({"a": 2}))
    client = client_of(server.url, max_retries=0)
    assert [post(client), post(client)] == [[{"a": 1}], [{"a": 2}]]
    assert client.num_retries == 0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_or_broken_server_is_asked_again(serve: Serve, client_of: Any, status: int) -> None:
    server = serve(Reply(status), Reply(status, ["no"]), json_reply({"a": 1}))
    client = client_of(server.url)
    assert post(client) == [{"a": 1}]
    assert (client.num_requests, client.num_retries) == (3, 2)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 422])
def test_other_refusals_are_final(serve: Serve, client_of: Any, status: int) -> None:
    other = serve()
    server = serve(Reply(status, ["why not"], headers=[("Location", other.url)]))
    with pytest.raises(EndpointError, match=rf"{status} [A-Z].*: why not") as caught:
        post(client_of(server.url))
    assert caught.value.status == status
    assert isinstance(caught.value, BackendError)
    assert (len(server.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(500, ["out of pages"], content_type="text/plain"), "500 .*: out of pages"),
        (Reply(502, []), "502 Bad Gateway: an empty body"),
        (Reply(503, ["<html><h1>busy</h1>"], content_type="text/html"), "503 .*<h1>busy"),
        (Reply(500, [b"\xff\xfe"]), "500 .*: \ufffd\ufffd"),
    ],
)
def test_the_status_and_the_body_are_in_the_error(
    serve: Serve, client_of: Any, reply: Reply, said: str
) -> None:
    server = serve(reply, reply)
    with pytest.raises(EndpointError, match=said):
        post(client_of(server.url, max_retries=1))
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<html>", "200, but not a JSON object: <html>"),
        ("", "200, but not a JSON object: an empty body"),
        ("[1]", r"not a JSON object: \[1\]"),
        ('{"a": ', "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('{"error": {"message": "no such model"}}', "in it an error: .*no such model"),
    ],
)
def test_bad_answers_with_status_200(serve: Serve, client_of: Any, text: str, said: str) -> None:
    server = serve(Reply(200, [text]))
    with pytest.raises(EndpointError, match=said) as caught:
        post(client_of(server.url))
    assert len(str(caught.value)) < 3000
    assert len(server.requests) == 1


def test_a_secret_in_a_body_is_not_shown(serve: Serve, client_of: Any) -> None:
    key = "sk-very-secret"
    body = "x" * 1990 + key  # It begins before the place where the body is cut.
    server = serve(Reply(401, [f"bad key {key}"]), Reply(401, [body]))
    client = client_of(server.url, key=key)
    for _ in range(2):
        with pytest.raises(EndpointError, match="401") as caught:
            post(client)
        assert "sk-v" not in str(caught.value)
        assert "sk-v" not in repr(client.endpoint)


def test_the_server_says_how_long_to_wait(serve: Serve, client_of: Any) -> None:
    server = serve(Reply(429, headers=[("Retry-After", "0.2")]), json_reply({}))
    begin = time.monotonic()
    assert post(client_of(server.url)) == [{}]
    assert time.monotonic() - begin >= 0.2


def test_a_wait_that_is_too_long_ends_the_call(serve: Serve, client_of: Any) -> None:
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    server = serve(Reply(429, ["later"], headers=[("Retry-After", date)]))
    with pytest.raises(EndpointError, match=r"429 .*: later"):
        post(client_of(server.url))
    assert len(server.requests) == 1


def test_pauses_grow_and_vary(client_of: Any) -> None:
    client = client_of("http://127.0.0.1:1", backoff=1.0)
    for tries, longest in enumerate([1, 2, 4, 8, 16, 32, 60, 60]):
        pauses = {client._pause(tries, None) for _ in range(20)}
        assert len(pauses) > 10
        assert all(longest / 2 <= pause <= longest for pause in pauses)


def test_no_server(client_of: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = client_of(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        with pytest.raises(EndpointError, match="cannot connect: ConnectionRefusedError"):
            post(client)
    assert client.num_retries == 3


@pytest.mark.parametrize(
    "broken",
    [
        Reply(drop=True),
        Reply(200, ['{"a": 1}'], length=99, drop=True),
        Reply(200, ['{"a": 1}'], chunked=True, drop=True),
        sse_reply([], done=False, drop=True),
    ],
)
def test_a_connection_that_breaks_before_the_answer_is_tried_again(
    serve: Serve, client_of: Any, broken: Reply
) -> None:
    server = serve(broken, json_reply({"b": 2}))
    assert post(client_of(server.url)) == [{"b": 2}]
    assert len(server.requests) == 2


def test_nothing_is_repeated_once_something_was_handed_on(serve: Serve, client_of: Any) -> None:
    server = serve(sse_reply([{"a": 1}], done=False, drop=True))
    taken: list[dict[str, Any]] = []
    ticket = Ticket()

    def take(event: dict[str, Any]) -> None:
        taken.append(event)
        ticket.delivered = True

    with pytest.raises(EndpointError, match="broke off"):
        client_of(server.url).post("/c", {}, ticket, take)
    assert taken == [{"a": 1}]
    assert len(server.requests) == 1


def test_events(serve: Serve, client_of: Any) -> None:
    stream = (
        b': ping\r\n\r\nevent: x\r\ndata: {"a":\r\ndata:1}\r\n\r\n'
        b'id: 5\n\n\n\ndata:{"\xc3\xa4": 2}\n\ndata: [DONE]\n\ndata: never\n\n'
    )
    pieces = [stream[i : i + 1] for i in range(len(stream))]  # In the middle of everything.
    server = serve(Reply(200, pieces, content_type="text/event-stream", chunked=True))
    assert post(client_of(server.url)) == [{"a": 1}, {"ä": 2}]


def test_a_stream_without_an_end_mark(serve: Serve, client_of: Any) -> None:
    server = serve(
        Reply(200, ['data: {"a": 1}\n\ndata: {"b": 2}'], content_type="text/event-stream")
    )
    assert post(client_of(server.url)) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("event", ["{broken", "[]", '{"error": "oh"}'])
def test_malformed_events(serve: Serve, client_of: Any, event: str) -> None:
    server = serve(Reply(200, [f"data: {event}\n\n"], content_type="text/event-stream"))
    with pytest.raises(EndpointError, match="gave 200"):
        post(client_of(server.url))


def test_huge_answers_are_not_read(
    serve: Serve, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_BODY_BYTES", 10**6)
    monkeypatch.setattr(transport, "MAX_EVENT_BYTES", 10**5)
    mega = ["x" * 10**5] * 50
    server = serve(
        Reply(200, mega, drop=True),
        Reply(200, ["data: ", *mega], content_type="text/event-stream", drop=True),
        Reply(400, mega, drop=True),
    )
    client = client_of(server.url)
    for said in ("larger than 1,000,000 bytes", "longer than 100,000 bytes", "400 .*xx… and more"):
        with pytest.raises(EndpointError, match=said) as caught:
            post(client)
        assert len(str(caught.value)) < 3000


def test_a_large_answer_is_read(serve: Serve, client_of: Any) -> None:
    text = "ä" * 2 * 10**6
    server = serve(json_reply({"a": text}))
    assert post(client_of(server.url)) == [{"a": text}]


def test_a_silent_server_times_out_and_is_not_asked_again(serve: Serve, client_of: Any) -> None:
    server = serve(json_reply({}))
    server.gate.clear()
    with pytest.raises(EndpointError, match=r"no answer within the timeout of 0\.1 s"):
        post(client_of(server.url, timeout=0.1))
    server.gate.set()
    assert len(server.requests) == 1


def test_an_answer_that_stops_times_out(serve: Serve, client_of: Any) -> None:
    gate = threading.Event()
    server = serve(sse_reply([{"a": 1}, {"b": 2}], wait=lambda i: i == 0 or gate.wait(20)))
    with pytest.raises(EndpointError, match="stopped for 1 s, the timeout"):
        post(client_of(server.url, timeout=1.0))
    gate.set()


@pytest.mark.parametrize("where", ["before", "headers", "stream", "pause"])
def test_a_call_can_be_ended_anywhere(serve: Serve, client_of: Any, where: str) -> None:
    gate = threading.Event()
    ticket = Ticket()
    begun = threading.Event()
    server = serve()
    if where == "headers":
        server.gate.clear()
    elif where == "stream":
        server.script = [sse_reply([{"a": 1}, {"b": 2}], wait=lambda i: i == 0 or gate.wait(20))]
    elif where == "pause":
        server.script = [Reply(429, headers=[("Retry-After", "50")])]
    else:
        ticket.cancel()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            client_of(server.url).post("/c", {}, ticket, lambda _: begun.set())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    if where == "stream":
        assert begun.wait(5)
    elif where != "before":
        while not server.requests:
            time.sleep(0.001)
        time.sleep(0.02 if where == "pause" else 0)
    ticket.cancel()
    thread.join(5)
    assert not thread.is_alive()
    assert [type(error) for error in failures] == [Cancelled]
    assert len(server.requests) == (where != "before")
    gate.set()
    server.gate.set()


def test_bodies_are_utf8_json(serve: Serve, client_of: Any) -> None:
    server = serve(json_reply({}))
    client_of(server.url).post("/c", {"prompt": "日本\n\0"}, Ticket(), lambda _: None)
    assert server.bodies == [{"prompt": "日本\n\0"}]
    assert json.loads(json.dumps(server.bodies)) == server.bodies
