"""A `.gguf` file's metadata and tensors, as they lie in it.

The `gguf` package has a reader, too, which makes NumPy arrays of each of a tokenizer's hundred
thousand strings: half of the time that a conversion took.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Metadata = dict[str, Any]

_SCALARS: dict[int, str] = {
    gguf.GGUFValueType.UINT8: "B",
    gguf.GGUFValueType.INT8: "b",
    gguf.GGUFValueType.UINT16: "H",
    gguf.GGUFValueType.INT16: "h",
    gguf.GGUFValueType.UINT32: "I",
    gguf.GGUFValueType.INT32: "i",
    gguf.GGUFValueType.UINT64: "Q",
    gguf.GGUFValueType.INT64: "q",
    gguf.GGUFValueType.FLOAT32: "f",
    gguf.GGUFValueType.FLOAT64: "d",
    gguf.GGUFValueType.BOOL: "?",
}
_VERSIONS = (2, 3)
_MOST_DIMENSIONS = 8
_DEFAULT_ALIGNMENT = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file."""

    name: str
    kind: gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    """As NumPy has it, rows first."""
    data: NDArray[np.uint8]
    """Its bytes, `[..., bytes of a row]`."""


def read(path: Path) -> tuple[Metadata, dict[str, Tensor]]:
    """The metadata and the tensors by name; the tensors' bytes stay in the file until they are
    used.

    Raises ValueError for what is not a whole GGUF file of version 2 or 3.
    """
    data = np.memmap(path, mode="r").view(np.ndarray)
    reader = _Reader(data.data)
    try:
        if reader.take(4) != b"GGUF":
            raise ValueError("it doesn't begin with GGUF")
        (version,) = reader.numbers("I", 1)
        if version not in _VERSIONS:
            raise ValueError(f"version {version:#x}, where 2 and 3 are known (little-endian)")
        num_tensors, num_fields = reader.numbers("Q", 2)
        metadata: Metadata = {}
        for _ in range(num_fields):
            name = reader.text()
            if name in metadata:
                raise ValueError(f"two fields are called {name!r}")
            metadata[name] = reader.value(*reader.numbers("I", 1))
        places = [reader.tensor() for _ in range(num_tensors)]
    except struct.error as error:
        raise ValueError("it ends too early") from error
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment={alignment!r}")
    start = -(-reader.at // alignment) * alignment
    tensors: dict[str, Tensor] = {}
    for name, kind, shape, offset in places:
        if name in tensors:
            raise ValueError(f"two tensors are called {name!r}")
        size = gguf.quant_shape_to_byte_shape(shape, kind)
        end = start + offset + math.prod(size)
        if end > len(data):
            raise ValueError(f"it ends within tensor {name!r}")
        tensors[name] = Tensor(name, kind, shape, data[start + offset : end].reshape(size))
    return metadata, tensors


class _Reader:
    """Reads a file's head, one thing after the other; struct.error where it ends."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def numbers(self, kind: str, count: int) -> tuple[Any, ...]:
        """So many numbers of a kind, as `struct` names it."""
        layout = f"<{count}{kind}"
        values = struct.unpack_from(layout, self._data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def take(self, size: int) -> bytes:
        """So many bytes."""
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise struct.error
        self.at += size
        return found.tobytes()

    def text(self) -> str:
        """A string."""
        return self.take(*self.numbers("Q", 1)).decode()

    def value(self, kind: int) -> Any:
        """A value of one of GGUF's types."""
        if kind == gguf.GGUFValueType.STRING:
            return self.text()
        if kind == gguf.GGUFValueType.ARRAY:
            (inner,) = self.numbers("I", 1)
            (count,) = self.numbers("Q", 1)
            if inner in _SCALARS:
                return list(self.numbers(_SCALARS[inner], count))
            if inner == gguf.GGUFValueType.STRING:
                return [self.text() for _ in range(count)]
            raise ValueError(f"an array of type {inner}")
        if kind not in _SCALARS:
            raise ValueError(f"a value of type {kind}")
        return self.numbers(_SCALARS[kind], 1)[0]

    def tensor(self) -> tuple[str, gguf.GGMLQuantizationType, tuple[int, ...], int]:
        """A tensor's name, type, shape and offset."""
        name = self.text()
        (dimensions,) = self.numbers("I", 1)
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
        shape = self.numbers("Q", dimensions)[::-1]
        kind, offset = *self.numbers("I", 1), *self.numbers("Q", 1)
        return name, gguf.GGMLQuantizationType(kind), shape, offset
