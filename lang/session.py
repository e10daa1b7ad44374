"""What one process shares between its programs: the default backend, threads, chat pieces.

The object `session` at the end is the language's one piece of global state.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from ramet.lang.backends.protocol import Backend
from ramet.lang.chat import ChatPieces
from ramet.lang.errors import InvalidArgument
from ramet.lang.loops import Loops
from ramet.lang.threads import Alarm, BodyThreads


class GlobalConfig:
    """Settings of the language for the whole process: `ramet.lang.global_config`."""

    def __init__(self, default_backend: Callable[[], Backend | None]) -> None:
        self._max_threads = 64
        self._default_backend = default_backend

    @property
    def default_backend(self) -> Backend | None:
        """The backend of programs that name none; None before the first one needs it."""
        return self._default_backend()

    @property
    def max_threads(self) -> int:
        """Most threads that run program bodies at once, over all `run_batch` calls, streams and
        nested programs. Calls that are queued need none, so this doesn't limit the engine."""
        return self._max_threads

    @max_threads.setter
    def max_threads(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidArgument(f"max_threads={value!r}: must be an int of at least 1")
        self._max_threads = value


class Session:
    """The shared objects of a process."""

    def __init__(self) -> None:
        self.config = GlobalConfig(lambda: self._default)
        """The settings."""
        self.threads = BodyThreads(lambda: self.config.max_threads)
        """The threads of program bodies."""
        self.loops = Loops()
        """The event loops that something is awaited on."""
        self.alarm = Alarm()
        """The time-outs of runs."""
        self._lock = threading.Lock()
        self._default: Backend | None = None
        self._start: Callable[[], Backend] = _start_runtime
        self._chats: weakref.WeakKeyDictionary[Backend, ChatPieces] = weakref.WeakKeyDictionary()

    def set_default(self, backend: Backend | Callable[[], Backend] | None) -> None:
        """Set the backend of programs that name none, or how to start it at the first need."""
        start = backend if callable(backend) else _start_runtime
        default = None if backend is None or callable(backend) else check_backend(backend)
        with self._lock:
            self._default, self._start = default, start

    def backend(self, backend: object = None) -> Backend:
        """`backend` if given, else the default one, which is started at the first need."""
        if backend is not None:
            return check_backend(backend)
        with self._lock:
            if self._default is None:
                self._default = check_backend(self._start())
            return self._default

    def chat(self, backend: Backend) -> ChatPieces:
        """The chat pieces of a backend's tokenizer, derived once."""
        with self._lock:
            chat = self._chats.get(backend)
            if chat is None:
                chat = self._chats[backend] = ChatPieces(backend.tokenizer)
            return chat


def check_backend(backend: Any) -> Backend:
    """`backend` if it has a backend's methods; raises InvalidArgument."""
    usable = callable(getattr(backend, "open", None)) and hasattr(backend, "tokenizer")
    if not usable or isinstance(backend, type):
        raise InvalidArgument(
            f"backend={backend!r}: must be a backend such as Runtime(...), or None for the default"
        )
    return backend  # type: ignore[no-any-return]


def _start_runtime() -> Backend:
    from ramet.runtime.runtime import Runtime  # Programs on another backend never need it.

    return Runtime()


session = Session()
"""This process's own."""


def set_default_backend(backend: Backend | Callable[[], Backend] | None) -> None:
    """Set the backend of programs that name none.

    A function is called for it when it is first needed; None stands for `Runtime`. Raises
    InvalidArgument for anything else.
    """
    session.set_default(backend)


def flush_cache(backend: Backend | None = None) -> object:
    """Have the backend (or the default one) forget cached text that nothing holds."""
    return session.backend(backend).flush_cache()


def get_server_info(backend: Backend | None = None) -> dict[str, Any]:
    """The counters and sizes of the backend (or the default one)."""
    return dict(session.backend(backend).stats())
