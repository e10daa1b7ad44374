"""Compiled kernels in files, one for each function, signature and processor.

Numba's own cache has an index beside its files: a damaged one of either ends the program, and two
processes that compile for different signatures at once may leave an index that names the other's
code. Here a file's name says what it is for and its first bytes whether it is whole; whatever can't
be used, read or written is as if it weren't there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import uuid
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

_DIGEST = hashlib.sha256().digest_size


class CodeCache(FunctionCache):
    """Numba's cache of one function, in such files."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = CodeFiles(
            Path(self._cache_path), self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """What a file is for. Numba adds what a closure has captured, in bytes that differ from
        process to process; here a closure's qualified name must tell it from others."""
        code = self._py_func.__code__.co_code
        return self._py_func.__qualname__, sig, codegen.magic_tuple(), code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code, where there is room for it."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class CodeFiles:
    """A function's files in a folder; `stamp` names the state of its source."""

    def __init__(self, folder: Path, name: str, stamp: Any) -> None:
        self._folder = folder
        self._name = name
        self._stamp = stamp

    def _path(self, key: Any) -> Path:
        digest = hashlib.sha256(repr((self._stamp, key)).encode()).hexdigest()
        return self._folder / f"{self._name}.{digest[:16]}.nbc"

    def load(self, key: Any) -> Any:
        """What was saved, or None."""
        try:
            stored = self._path(key).read_bytes()
        except OSError:
            return None
        code = stored[_DIGEST:]
        if hashlib.sha256(code).digest() != stored[:_DIGEST]:
            return None
        return pickle.loads(code)

    def save(self, key: Any, data: Any) -> None:
        """Write a file in one step; raises OSError where that can't be done."""
        code = dumps(data)
        path = self._path(key)
        own = path.with_suffix(f".{uuid.uuid4().hex[:16]}")
        try:
            own.write_bytes(hashlib.sha256(code).digest() + code)
            os.replace(own, path)
        except OSError:
            own.unlink(missing_ok=True)
            raise
