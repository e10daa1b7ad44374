"""Memory that a decoder keeps: none before it is written, and large pages where there are any.

NumPy's zeros are both on Linux (it asks for large pages from 4 MB on); torch's are neither.
"""

from __future__ import annotations

import contextlib
import math
import mmap

import numpy as np
import torch

_AT_ONCE = 64 << 20
_LINE = 64


def zeros(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take no memory until they are written."""
    count = math.prod(size) * dtype.itemsize
    return torch.from_numpy(np.zeros(count, dtype=np.uint8)).view(dtype).view(size)


def scattered_zeros(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The same for what is written here and there: memory comes 4 KB at a time.

    The first token of a context writes to 450 places of a large pool: in pages of 2 MB it takes the
    system more than a second to clear them.
    """
    count = math.prod(size) * dtype.itemsize
    private = {}
    if hasattr(mmap, "MAP_PRIVATE"):
        private["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(count, 1), **private)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # A kernel without large pages.
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)[:count].view(dtype).view(size)


class Room:
    """Memory that tensors share, one behind the other, so that small ones lie in large pages too.

    With a page to look up for every 4 KB, a step of few rows, which does little but read all
    weights, takes a sixth longer, and one of many, which writes columns of long rows, 2 %.
    """

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)

    def take(self, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor that begins at a cache line; what is in it is zero."""
        count = math.prod(size) * dtype.itemsize
        if count > len(self._free):
            memory = zeros((max(count, _AT_ONCE) + _LINE,), torch.uint8)
            self._free = memory[-memory.data_ptr() % _LINE :]
        taken = self._free[:count]
        self._free = self._free[-(-count // _LINE) * _LINE :]
        return taken.view(dtype).view(size)
