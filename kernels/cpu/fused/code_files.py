"""Compiled kernels in files, one for each function, signature and processor.

Numba's own cache has an index beside its files: a damaged one of either ends the program, and two
processes that compile for different signatures at once may leave an index that names the other's
code. Here a file's name says what it is for and its last bytes whether it is whole; whatever can't
be used, read or written is as if it weren't there.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile


class CodeCache(FunctionCache):
    """Numba's cache of one function, in such files."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = CodeFiles(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """What a file is for. Numba adds what a closure has captured, in bytes that differ from
        process to process; here a closure's qualified name must tell it from others."""
        code = self._py_func.__code__.co_code
        return self._py_func.__qualname__, sig, codegen.magic_tuple(), code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code, where there is room for it."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class CodeFiles(IndexDataCacheFile):
    """Numba's files of one function, without an index; each ends with the digest of the rest."""

    def _name_of(self, key: Any) -> str:
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).hexdigest()
        return str(self._data_name_pattern.format(number=int(digest[:15], 16)))

    def load(self, key: Any) -> Any:
        """What was saved, or None."""
        name = self._name_of(key)
        try:
            stored = Path(self._data_path(name)).read_bytes()
            size = len(stored) - hashlib.sha256().digest_size
            if size > 0 and hashlib.sha256(stored[:size]).digest() == stored[size:]:
                return self._load_data(name)  # Numba doesn't look at what follows the code.
        except OSError:
            pass
        return None

    def save(self, key: Any, data: Any) -> None:
        """Write a file in one step; raises OSError where that can't be done."""
        self._save_data(self._name_of(key), data)

    def _dump(self, obj: Any) -> bytes:
        code: bytes = super()._dump(obj)
        return code + hashlib.sha256(code).digest()
