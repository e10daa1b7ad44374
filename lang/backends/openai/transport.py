"""HTTP to one endpoint: kept connections, retries, server-sent events, and calls that can be ended.

It knows nothing of models. Requests go to the given base URL and nowhere else: no redirects, no
proxies. Used by the worker threads of `jobs`.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ramet.lang.backends.openai.address import Endpoint
from ramet.runtime.errors import BackendError, Cancelled

MAX_BODY_BYTES = 128 * 2**20
"""Largest answer that is read."""
MAX_EVENT_BYTES = 16 * 2**20
"""Largest line of an event stream that is read."""
CONNECT_SECONDS = 10.0
"""Longest time to connect, if the time-out isn't shorter."""
MAX_WAIT_SECONDS = 60.0
"""Longest pause before a retry; a server that asks for a longer one ends the call."""
END_SECONDS = 0.1
"""Longest wait for the end of a stream whose last event is there; only then its connection is
kept."""

_SHOWN_CHARACTERS = 2000
_IDLE_SECONDS = 30.0
_RETRIED = (408, 409, 429)


class Ticket:
    """One call's right to be served; `cancel` ends it from any thread, wherever it stands."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        """Whether it was ended."""
        self.delivered = False
        """Whether something of an answer has been handed on, so that a retry would repeat it."""
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def cancel(self) -> None:
        """End it, and its connection."""
        with self._lock:
            self.cancelled.set()
            if self._socket is not None:
                # Not SSLSocket's own, which isn't safe while another thread reads.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def hold(self, sock: socket.socket | None) -> None:
        """Note the socket that its answer comes from, or that there is none; raises Cancelled."""
        with self._lock:
            self._socket = sock
        if sock is not None:
            self.check()

    def check(self) -> None:
        """Raise Cancelled if it was ended."""
        if self.cancelled.is_set():
            raise Cancelled("the call was aborted")


class EndpointError(BackendError):
    """A call that failed, with the HTTP status if there was an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Failure(Exception):
    """An attempt that failed in a way that another may not."""

    def __init__(
        self, error: EndpointError, wait: float | None = None, *, stale: bool = False
    ) -> None:
        super().__init__(error)
        self.error, self.wait = error, wait
        self.stale = stale  # On a kept connection, which the server may have closed before.


class HttpClient:
    """Posts JSON to an endpoint. Usable from any number of threads; keeps idle connections."""

    def __init__(self, endpoint: Endpoint, max_idle: int) -> None:
        self.endpoint = endpoint
        """Where it goes."""
        self.num_requests = 0
        """Requests sent, retries included."""
        self.num_retries = 0
        """Requests that were sent again."""
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._max_idle = max_idle
        self._closed = False
        self._random = random.Random()
        self._tls = ssl.create_default_context() if endpoint.https else None

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        ticket: Ticket,
        take: Callable[[dict[str, Any]], None],
    ) -> None:
        """Post `body`; `take` gets the JSON object of the answer, or of each of its events.

        Tries again, after a pause, when the connection fails or the server is busy or broken, but
        never once something was handed to `take`. Raises BackendError with the status and the body
        of the last answer, and Cancelled.
        """
        data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        tries = 0
        while True:
            ticket.check()
            try:
                self._attempt(path, data, ticket, take)
                return
            except _Failure as failure:
                ticket.check()
                if ticket.delivered:
                    raise failure.error from None
                if failure.stale:
                    continue  # The server had closed a kept connection.
                pause = self._pause(tries, failure.wait)
                if tries >= self.endpoint.max_retries or pause > MAX_WAIT_SECONDS:
                    raise failure.error from None
            tries += 1
            with self._lock:
                self.num_retries += 1
            ticket.cancelled.wait(pause)

    def close(self) -> None:
        """Close what is idle, and keep nothing from now on."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    @property
    def num_idle(self) -> int:
        """Connections that are kept for later."""
        return len(self._idle)

    def _pause(self, tries: int, asked: float | None) -> float:
        if asked is not None:
            return asked
        longest: float = min(self.endpoint.backoff * 2.0 ** min(tries, 30), MAX_WAIT_SECONDS)
        return longest * self._random.uniform(0.5, 1.0)

    def _attempt(
        self, path: str, data: bytes, ticket: Ticket, take: Callable[[dict[str, Any]], None]
    ) -> None:
        url = f"POST {self.endpoint.base_url}{path}"
        connection, used = self._connection(url)
        keep = False
        try:
            sock = connection.sock  # Of its own, since http.client may forget it.
            ticket.hold(sock)
            with self._lock:
                self.num_requests += 1
            try:
                target = f"{self.endpoint.path}{path}"
                connection.request("POST", target, data, dict(self.endpoint.headers))
                response = connection.getresponse()
            except TimeoutError:
                raise self._error(
                    f"{url}: no answer within the timeout of {self.endpoint.timeout:g} s"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                raise _Failure(self._error(f"{url} failed: {_say(error)}"), stale=used) from None
            with response:
                self._read(url, response, take)
                keep = self._is_over(sock, response)
        finally:
            ticket.hold(None)
            if keep:
                self._keep(connection)
            else:
                connection.close()

    def _read(
        self,
        url: str,
        response: http.client.HTTPResponse,
        take: Callable[[dict[str, Any]], None],
    ) -> None:
        try:
            if response.status != 200:
                self._refuse(url, response)
            if "text/event-stream" in response.getheader("content-type", "").lower():
                for event in _events(response):
                    take(self._object(url, event))
            else:
                take(self._object(url, _body(response)))
        except TimeoutError:
            raise self._error(
                f"{url}: the answer stopped for {self.endpoint.timeout:g} s, the timeout"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Failure(self._error(f"{url}: the answer broke off: {_say(error)}")) from None
        except _TooLarge as error:
            raise self._error(f"{url}: {error}") from None

    def _refuse(self, url: str, response: http.client.HTTPResponse) -> None:
        """Raise what an answer other than 200 means."""
        try:
            data = response.read(8 * _SHOWN_CHARACTERS)
        except (OSError, http.client.HTTPException):
            data = b""
        error = self._error(
            f"{url} gave {response.status} {response.reason}: {self._shown(data)}", response.status
        )
        if response.status in _RETRIED or response.status >= 500:
            raise _Failure(error, _asked_pause(response.headers))
        raise error

    def _object(self, url: str, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._error(f"{url} gave 200, but not a JSON object: {self._shown(data)}", 200)
        if found.get("error"):
            raise self._error(f"{url} gave 200, and in it an error: {self._shown(data)}", 200)
        return found

    def _is_over(self, sock: socket.socket, response: http.client.HTTPResponse) -> bool:
        """Whether an answer's end was read, so that its connection can be used again."""
        if response.will_close:
            return False
        if not response.isclosed() and response.chunked:
            # After the last event only the end mark can follow, which came with it or is late.
            try:
                sock.settimeout(END_SECONDS)
                response.read(1)
                sock.settimeout(self.endpoint.timeout)
            except (OSError, http.client.HTTPException):
                return False
        return response.isclosed()

    def _shown(self, data: bytes) -> str:
        """A body as a message shows it."""
        # Secrets first: a cut could leave a part of one that is not found any more.
        text = self.endpoint.hide(data.decode(errors="replace").strip())
        rest = len(text) - _SHOWN_CHARACTERS
        if rest > 0:
            text = f"{text[:_SHOWN_CHARACTERS]}… and more"
        return text or "an empty body"

    def _error(self, message: str, status: int | None = None) -> EndpointError:
        return EndpointError(self.endpoint.hide(message), status)

    def _connection(self, url: str) -> tuple[http.client.HTTPConnection, bool]:
        """A connected connection, and whether it was used before."""
        old: list[http.client.HTTPConnection] = []
        kept: http.client.HTTPConnection | None = None
        with self._lock:
            while self._idle and kept is None:
                since, connection = self._idle.pop()
                if time.monotonic() - since < _IDLE_SECONDS:
                    kept = connection
                else:
                    old.append(connection)
        for connection in old:
            connection.close()
        if kept is not None:
            return kept, True
        end = self.endpoint
        seconds = min(CONNECT_SECONDS, end.timeout)
        connection = (
            http.client.HTTPSConnection(end.host, end.port, timeout=seconds, context=self._tls)
            if end.https
            else http.client.HTTPConnection(end.host, end.port, timeout=seconds)
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise self._error(f"{url}: {_say(error)}") from None
        except OSError as error:
            connection.close()
            raise _Failure(self._error(f"{url}: cannot connect: {_say(error)}")) from None
        connection.sock.settimeout(end.timeout)
        return connection, False

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < self._max_idle:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()


class _TooLarge(Exception):
    """An answer is larger than what is read."""


def _body(response: http.client.HTTPResponse) -> bytes:
    length = response.length
    pieces, size = [], 0
    while piece := response.read(2**16):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise _TooLarge(f"the answer is larger than {MAX_BODY_BYTES:,} bytes")
    if length is not None and size < length:
        raise http.client.IncompleteRead(b"", length - size)
    return b"".join(pieces)


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The data of each server-sent event, up to `[DONE]` or the end."""
    data: list[bytes] = []
    size = 0
    for line in _lines(response):
        size += len(line)
        if size > MAX_EVENT_BYTES:
            raise _TooLarge(f"an event is longer than {MAX_EVENT_BYTES:,} bytes")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line:
            event, data, size = b"\n".join(data), [], 0
            if event.strip() == b"[DONE]":
                return
            if event:
                yield event
    if data and b"\n".join(data).strip() != b"[DONE]":
        yield b"\n".join(data)


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines of an answer as they come; raises IncompleteRead if it breaks off."""
    # Not HTTPResponse.readline: it takes a broken connection for the end of the answer.
    left = None if response.chunked else response.length
    buffer = bytearray()
    while left is None or left > 0:
        piece = response.read1(2**16 if left is None else min(left, 2**16))
        if not piece:
            if left is not None:
                raise http.client.IncompleteRead(b"", left)
            break
        left = None if left is None else left - len(piece)
        buffer += piece
        if b"\n" in piece:
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            yield from (line.removesuffix(b"\r") for line in lines)
        elif len(buffer) > MAX_EVENT_BYTES:
            break  # `_events` refuses it.
    if buffer:
        yield bytes(buffer)


def _asked_pause(headers: http.client.HTTPMessage) -> float | None:
    """The seconds that a server asks to wait (`Retry-After`, RFC 9110), if it does."""
    asked = (headers.get("retry-after") or "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", asked):
        return float(asked)
    try:
        return max(email.utils.parsedate_to_datetime(asked).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return None


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
