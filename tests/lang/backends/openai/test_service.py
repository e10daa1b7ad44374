from __future__ import annotations

from collections.abc import Callable

import pytest
from stub_server import Reply, StubServer, text_reply

from ramet.lang.backends.openai import OpenAI
from ramet.lang.backends.openai.jobs import Job
from ramet.lang.backends.openai.service import COMPLETIONS, Tally
from ramet.lang.errors import BackendError
from ramet.runtime.client.call import CallResult
from ramet.runtime.request import SamplingParams


def test_tallies_add_what_is_told() -> None:
    tally = Tally()
    tally.add({"prompt_tokens": 5, "completion_tokens": 2})
    tally.add({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}})
    tally.add(None)
    assert tally.counts == {"prompt_tokens": 6, "cached_tokens": 1, "completion_tokens": 2}


def idle(job: Job) -> CallResult:
    raise AssertionError


@pytest.mark.parametrize("stream", [False, True])
def test_text_that_came_is_never_asked_for_twice(
    serve: Callable[..., StubServer], connect: Callable[..., OpenAI], stream: bool
) -> None:
    """Also where the server streams although nobody asked it to."""
    event = b'data: {"choices": [{"index": 0, "text": "so", "finish_reason": null}]}\n\n'
    broken = Reply(200, [event], content_type="text/event-stream", chunked=True, drop=True)
    server = serve(broken, text_reply("never"))
    job = Job(1, idle, lambda job: None, streams=stream)
    service = connect(server)._service
    with pytest.raises(BackendError, match="broke off"):
        service.ask(job, COMPLETIONS, {}, SamplingParams(), stream)
    assert job.ticket.delivered
    assert len(server.requests) == 1
