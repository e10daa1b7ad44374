"""What one process shares between its programs: the default backend, threads, chat pieces.

The object `session` at the end is the language's one piece of global state.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ramet.lang.backends.protocol import Backend, Tokenizer
from ramet.lang.chat import ChatPieces
from ramet.lang.errors import InvalidArgument
from ramet.lang.threads import Alarm, BodyThreads


class GlobalConfig:
    """Settings of the language for the whole process."""

    def __init__(self) -> None:
        self._max_threads = 64

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
        self.config = GlobalConfig()
        """The settings."""
        self.threads = BodyThreads(lambda: self.config.max_threads)
        """The threads of program bodies."""
        self.alarm = Alarm()
        """The time-outs of runs."""
        self._lock = threading.Lock()
        self._default: Backend | None = None
        self._chats: weakref.WeakKeyDictionary[Tokenizer, ChatPieces] = (
            weakref.WeakKeyDictionary()
        )

    def set_default(self, backend: Backend | None) -> None:
        """Make `backend` the one of programs that name none; None: start a Runtime when needed."""
        with self._lock:
            self._default = None if backend is None else check_backend(backend)

    def backend(self, backend: object = None) -> Backend:
        """`backend` if given, else the default one, which is started at the first need."""
        if backend is not None:
            return check_backend(backend)
        with self._lock:
            if self._default is None:
                from ramet.runtime.runtime import Runtime  # A program may never need it.

                self._default = Runtime()
            return self._default

    def chat(self, tokenizer: Tokenizer) -> ChatPieces:
        """The chat pieces of a tokenizer, derived once."""
        with self._lock:
            chat = self._chats.get(tokenizer)
            if chat is None:
                chat = self._chats[tokenizer] = ChatPieces(tokenizer)
            return chat


def check_backend(backend: Any) -> Backend:
    """`backend` if it has a backend's methods; raises InvalidArgument."""
    if not callable(getattr(backend, "open", None)) or not hasattr(backend, "tokenizer"):
        raise InvalidArgument(
            f"backend={backend!r}: must be a backend such as Runtime(...), or None for the default"
        )
    return backend  # type: ignore[no-any-return]


session = Session()
"""This process's own."""
