"""An OpenAI-compatible endpoint without a model, on a real socket of the loopback interface.

Answers are scripted: a list of them, one per request, or a function of the request. Without a
script a "model" answers, whose text is a function of the prompt and which cuts stops itself.
"""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Say = Callable[["Request"], str]


@dataclasses.dataclass
class Request:
    """What a client sent."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    port: int
    """The client's port, which tells connections apart."""

    @property
    def prompt(self) -> str:
        if "prompt" in self.body:
            return str(self.body["prompt"])
        return "".join(f"[{m['role']}]{m['content']}" for m in self.body["messages"])


@dataclasses.dataclass
class Reply:
    """One answer. `pieces` are written one by one, each after `wait(i)`; the socket may drop."""

    status: int = 200
    pieces: Sequence[bytes | str] = ()
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()
    wait: Callable[[int], object] = lambda index: None
    chunked: bool = False
    length: int | None = None
    """The length that is claimed, if it isn't the true one."""
    drop: bool = False
    """Whether the connection is closed at once, behind the pieces."""


def eventually(true: Callable[[], object]) -> None:
    """Wait until `true()`, five seconds at most."""
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def tokens_of(text: str) -> list[str]:
    """Words with the space before them, and single other characters."""
    return re.findall(r" ?\w+|\W", text)


def logprob_of(token: str, before: str) -> float:
    """A number for a token behind a text."""
    return -0.1 * (1 + (sum(map(ord, token)) + 7 * len(before)) % 50)


class StubServer:
    """Serves until `close`, which asserts that no connection is left open by the client."""

    def __init__(self, *script: Reply, say: Say | None = None) -> None:
        self.requests: list[Request] = []
        self.script = list(script)
        self.say: Say = say or (lambda request: f" <{len(request.prompt)}>")
        self.answer: Callable[[Request], Reply] | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.num_now = self.peak = 0
        self.lock = threading.Lock()
        self.sockets: set[socket.socket] = set()
        stub = self

        class Handler(_Handler):
            owner = stub

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # A client that hung up.

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join(5)
        for sock in list(self.sockets):
            sock.close()
        self._server.server_close()

    def reply(self, request: Request) -> Reply:
        with self.lock:
            self.requests.append(request)
            self.num_now += 1
            self.peak = max(self.peak, self.num_now)
            scripted = self.script.pop(0) if self.script else None
        try:
            assert self.gate.wait(20)
            if scripted is not None:
                return scripted
            if self.answer is not None:
                return self.answer(request)
            return self.model(request)
        finally:
            with self.lock:
                self.num_now -= 1

    def model(self, request: Request) -> Reply:
        """What an ordinary server answers."""
        body = request.body
        if body.get("echo"):
            return json_reply(_echoed(body["prompt"]))
        chat = request.path.endswith("/chat/completions")
        limit = body.get("max_tokens", body.get("max_completion_tokens", 10**6))
        samples = []
        for index in range(body.get("n", 1)):
            tokens = tokens_of(self.say(request) + (f"#{index}" if index else ""))
            text, finish = "".join(tokens[:limit]), "length" if len(tokens) > limit else "stop"
            found = [(text.find(s), s) for s in body.get("stop", []) if s in text]
            if found:
                text, finish = text[: min(found)[0]], "stop"
            samples.append((text, finish))
        prompt = len(tokens_of(request.prompt))
        done = sum(len(tokens_of(text)) for text, _ in samples)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": done,
            "prompt_tokens_details": {"cached_tokens": prompt // 2},
        }
        logprobs = body.get("logprobs")
        if body.get("stream"):
            return sse_reply(list(_events(samples, chat, logprobs, usage)))
        choices = [
            {"index": i, "finish_reason": finish, **_content(text, chat, logprobs, "message")}
            for i, (text, finish) in enumerate(samples)
        ]
        return json_reply({"choices": choices, "usage": usage})


class _Handler(BaseHTTPRequestHandler):
    owner: StubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.owner.sockets.add(self.connection)

    def finish(self) -> None:
        super().finish()
        self.owner.sockets.discard(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        request = Request(
            self.path, json.loads(data), dict(self.headers.items()), self.client_address[1]
        )
        reply = self.owner.reply(request)
        pieces = [p.encode() if isinstance(p, str) else p for p in reply.pieces]
        if not (reply.drop and not pieces):
            self._write(reply, pieces)
        if reply.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def _write(self, reply: Reply, pieces: list[bytes]) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        for name, value in reply.headers:
            self.send_header(name, value)
        if reply.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            length = sum(map(len, pieces)) if reply.length is None else reply.length
            self.send_header("Content-Length", str(length))
        self.end_headers()
        for index, piece in enumerate(pieces):
            reply.wait(index)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if reply.chunked else piece)
            self.wfile.flush()
        if reply.chunked and not reply.drop:
            self.wfile.write(b"0\r\n\r\n")


def json_reply(data: Any, **options: Any) -> Reply:
    return Reply(pieces=[json.dumps(data)], **options)


def sse_reply(events: list[Any], *, done: bool = True, **options: Any) -> Reply:
    pieces = [f"data: {json.dumps(event)}\n\n" for event in events]
    if done:
        pieces.append("data: [DONE]\n\n")
    return Reply(pieces=pieces, content_type="text/event-stream", chunked=True, **options)


def text_reply(text: str, finish: str | None = "stop", **choice: Any) -> Reply:
    return json_reply({"choices": [{"index": 0, "text": text, "finish_reason": finish, **choice}]})


def _content(text: str, chat: bool, logprobs: Any, role: str) -> dict[str, Any]:
    tokens = tokens_of(text)
    if not chat:
        rows = {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens)}
        rows["top_logprobs"] = [{token: -0.5, "?": -1.5} for token in tokens]
        return {"text": text, "logprobs": rows if logprobs is not None else None}
    content = [
        {"token": t, "logprob": -0.5, "top_logprobs": [{"token": t, "logprob": -0.5}]}
        for t in tokens
    ]
    found = {"content": content} if logprobs else None
    return {role: {"role": "assistant", "content": text}, "logprobs": found}


def _events(
    samples: list[tuple[str, str]], chat: bool, logprobs: Any, usage: dict[str, Any]
) -> Any:
    if chat:
        yield {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
    for index, (text, finish) in enumerate(samples):
        for token in tokens_of(text):
            content = _content(token, chat, logprobs, "delta")
            yield {"choices": [{"index": index, "finish_reason": None, **content}]}
        end = {"delta": {}} if chat else {"text": ""}
        yield {"choices": [{"index": index, "finish_reason": finish, **end}]}
    yield {"choices": [], "usage": usage}


def _echoed(prompts: list[str]) -> dict[str, Any]:
    choices = []
    for index, prompt in enumerate(prompts):
        tokens = [*tokens_of(prompt), " next"]
        before = ["".join(tokens[:i]) for i in range(len(tokens))]
        logprobs = [logprob_of(t, b) for t, b in zip(tokens, before, strict=True)]
        found = {"tokens": tokens, "token_logprobs": [None, *logprobs[1:]]}
        found["text_offset"] = [len(b) for b in before]
        text = prompt + " next"
        choices.append({"index": index, "text": text, "logprobs": found, "finish_reason": "length"})
    return {"choices": choices, "usage": {"prompt_tokens": 10, "completion_tokens": len(prompts)}}
