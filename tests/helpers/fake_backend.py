"""A backend without a model: scripted answers, given by a thread of its own, like an engine's.

It has the engine's rules that the language relies on: operations of a context run in order, forks
wait for their parent, a failed call fails what is queued behind it, an aborted call is Cancelled.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ramet.runtime.chat_template import CHATML, ChatTemplate
from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.errors import Cancelled
from ramet.runtime.request import SamplingParams

Piece = tuple[str, str]
Script = Callable[[str, SamplingParams, int], str]
"""(the prompt's text, parameters, sample) to the text that the model would write."""


class FakeTokenizer:
    """One token per byte; BOS, if there is one, is written `<s>`."""

    vocab_size = 260

    def __init__(self, template: str | None, bos: str) -> None:
        self.bos = bos
        self.num_renders = 0
        self._template = ChatTemplate(template or "", {"bos_token": bos, "eos_token": "</s>"})

    @property
    def bos_id(self) -> int | None:
        return 256 if self.bos else None

    def special_text(self, token_id: int) -> str:
        return self.bos if token_id == 256 else ""

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        self.num_renders += 1
        return self._template.render(messages, add_generation_prompt)


class FakeHandle:
    """A context: `pieces` as appended, and what its engine side knows."""

    def __init__(self, backend: FakeBackend, seed: int | None, path: str = "") -> None:
        self.backend = backend
        self.seed = seed
        self.path = path
        self.pieces: list[Piece] = []
        self.ops: deque[tuple[Any, ...]] = deque()
        self.text: str | None = ""
        self.error: Exception | None = None
        self.busy = False
        self.closed = False
        self._num_children = 0

    def append(self, pieces: Sequence[Piece]) -> None:
        assert all(text and kind in ("text", "content") for text, kind in pieces)
        self.pieces += pieces
        self._send("append", "".join(text for text, _ in pieces))

    def generate(
        self,
        params: SamplingParams,
        *,
        stream: bool,
        site: str,
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        params.check_vocabulary(self.backend.tokenizer.vocab_size)
        assert ":" in site
        call = self.backend.new_call(stream)
        self._send("generate", call, params)
        return call

    def select(
        self,
        choices: Sequence[str],
        method: str,
        *,
        temperature: float,
        site: str,
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        call = self.backend.new_call(False)
        self._send("select", call, list(choices), method, temperature)
        return call

    def fork(self, n: int) -> list[FakeHandle]:
        assert n >= 1
        children = []
        for _ in range(n):
            path = f"{self.path}.{self._num_children}".lstrip(".")
            child = FakeHandle(self.backend, self.seed, path)
            child.pieces, child.text = list(self.pieces), None
            children.append(child)
            self._num_children += 1
        self._send("fork", children)
        return children

    def join(self, children: Sequence[FakeHandle]) -> None:
        assert all(child.path.rpartition(".")[0] == self.path for child in children)
        assert not any(child.closed for child in children)

    def close(self) -> None:
        if not self.closed:
            self._send("close")
            self.closed = True

    def _send(self, *op: Any) -> None:
        assert not self.closed, f"{op[0]} after close"
        with self.backend.changed:
            self.ops.append(op)
            self.backend.contexts.add(self)
            self.backend.changed.notify_all()


class _Job:
    """A call that runs: what it has yet to say."""

    def __init__(self, handle: FakeHandle, call: Call[CallResult], result: CallResult) -> None:
        self.handle, self.call, self.result = handle, call, result
        text = result.texts[0]
        self.chunks = [text[i : i + 2] for i in range(0, len(text), 2)]


class FakeBackend:
    """Answers come from `script`, selections from `pick`; nothing ends while `gate` is cleared."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        pick: Callable[[str, list[str]], int] = lambda prompt, choices: 0,
        template: str | None = CHATML,
        bos: str = "",
    ) -> None:
        self.script: Script = script or (lambda prompt, params, sample: f"[{len(prompt)}]")
        self.pick = pick
        self.tokenizer = FakeTokenizer(template, bos)
        self.gate = threading.Event()
        self.gate.set()
        self.changed = threading.Condition()
        self.contexts: set[FakeHandle] = set()
        self.roots: list[FakeHandle] = []
        self.log: list[tuple[str, Any]] = []
        self.num_calls = self.num_running = self.peak_running = self.num_flushes = 0
        self.prompts: list[str] = []
        self.params: list[SamplingParams] = []
        self._jobs: list[_Job] = []
        self._aborted: set[int] = set()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    def open(self, *, seed: int | None = None, name: str | None = None) -> FakeHandle:
        handle = FakeHandle(self, seed)
        with self.changed:
            self.roots.append(handle)
            self.contexts.add(handle)
        return handle

    def stats(self) -> dict[str, Any]:
        return {"running": self.num_running, "contexts": len(self.contexts)}

    def flush_cache(self) -> None:
        self.num_flushes += 1

    def shutdown(self) -> None:
        with self.changed:
            self._stopped = True
            self.changed.notify_all()
        self._thread.join(5)

    def new_call(self, stream: bool) -> Call[CallResult]:
        with self.changed:
            self.num_calls += 1
            self.num_running += 1
            self.peak_running = max(self.peak_running, self.num_running)
            call: Call[CallResult] = Call(
                self.num_calls, lambda event: event["result"], self._abort, streams=stream
            )
        call.add_done_callback(self._count_down)
        return call

    def audit(self) -> None:
        """Assert that nothing is left of any program, once what still runs has had time to end."""
        pause = threading.Event()
        for _ in range(500):
            if not self.num_running and not self.contexts:
                return
            pause.wait(0.01)
        raise AssertionError(f"{self.num_running} calls and {len(self.contexts)} contexts left")

    def _abort(self, call_id: int) -> None:
        with self.changed:
            self._aborted.add(call_id)
            self.changed.notify_all()

    def _count_down(self, _: object) -> None:
        with self.changed:
            self.num_running -= 1

    def _run(self) -> None:
        while True:
            with self.changed:
                if self._stopped:
                    return
                moved = [handle for handle in list(self.contexts) if self._advance(handle)]
                jobs = list(self._jobs)
                aborted = set(self._aborted)
            spoke = [job for job in jobs if self._speak(job, job.call.call_id in aborted)]
            with self.changed:
                if not moved and not spoke and not self._stopped and self._aborted == aborted:
                    self.changed.wait(0.005)

    def _advance(self, handle: FakeHandle) -> bool:
        """One operation of a context, if it can go on."""
        if handle.busy or handle.text is None or not handle.ops:
            return False
        op, *rest = handle.ops.popleft()
        if op == "append":
            handle.text += rest[0]
        elif op == "fork":
            for child in rest[0]:
                child.text, child.error = handle.text, handle.error
        elif op == "close":
            self.contexts.discard(handle)
            self.changed.notify_all()
        else:
            handle.busy = True
            self._jobs.append(self._start(handle, op, rest))
        return True

    def _start(self, handle: FakeHandle, op: str, rest: list[Any]) -> _Job:
        prompt = handle.text or ""
        self.prompts.append(prompt)
        index = None
        try:
            if op == "select":
                _, choices, method, temperature = rest
                self.log.append(("select", (method, temperature)))
                index = self.pick(prompt, choices)
                texts, ends = [choices[index]], ["stop"]
            else:
                params: SamplingParams = rest[1]
                self.params.append(params)
                outputs = [self.script(prompt, params, i) for i in range(params.n)]
                texts, ends = zip(*(_cut(text, params) for text in outputs), strict=True)
        except Exception as error:
            handle.error = handle.error or error
            texts, ends = [""], ["error"]
        metas = [
            {
                "prompt_token_ids": list(prompt.encode()),
                "output_token_ids": list(text.encode()),
                "finish_reason": end,
                "output_token_logprobs": [(-1.0, byte, chr(byte)) for byte in text.encode()],
            }
            for text, end in zip(texts, ends, strict=True)
        ]
        return _Job(handle, rest[0], CallResult(list(texts), [], lambda: metas, index))

    def _speak(self, job: _Job, aborted: bool) -> bool:
        """Let a job say one thing, or end."""
        handle = job.handle
        if aborted and handle.error is None:
            handle.error = Cancelled("the call was aborted")
        if handle.error is None and not self.gate.is_set():
            return False
        if handle.error is None and job.chunks:
            event = {"sample": 0, "text": job.chunks.pop(0), "ids": [1]}
            job.call.feed(event)
            return True
        with self.changed:
            self._jobs.remove(job)
            handle.text = (handle.text or "") + job.result.texts[0]
            handle.busy = False
        if handle.error is not None:
            job.call.fail(type(handle.error)(*handle.error.args))
        else:
            job.call.finish({"result": job.result})
        return True


def _cut(text: str, params: SamplingParams) -> tuple[str, str]:
    found = [(text.find(stop), stop) for stop in params.stop if stop in text]
    if found:
        return text[: min(found)[0]], "stop"
    limit = params.max_new_tokens
    if isinstance(limit, int) and len(text) > limit:
        return text[:limit], "length"
    return text, "eos"


MakeBackend = Callable[..., FakeBackend]
"""The type of the `make_backend` fixture."""
