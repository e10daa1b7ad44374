"""The reader of GGUF files beside the `gguf` package's own, and files that are not whole."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from ramet.runtime.source import gguf_file  # noqa: E402

WEIGHT = np.random.default_rng(0).standard_normal((6, 64), np.float32)


def write(path: Path, **settings: Any) -> Path:
    writer = gguf.GGUFWriter(path, "llama", **settings)
    writer.add_uint8("small", 200)
    writer.add_int64("far", -(2**40))
    writer.add_float32("third", 1 / 3)
    writer.add_bool("yes", True)
    writer.add_string("text", "Ünïcödé ☃")
    writer.add_array("words", ["", "a", "☃"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_tensor("plain", WEIGHT)
    writer.add_tensor("line", WEIGHT[0])
    writer.add_tensor("half", WEIGHT.astype(np.float16))
    kind = gguf.GGMLQuantizationType.Q4_1
    writer.add_tensor("packed", gguf.quantize(WEIGHT, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_it_reads_what_the_package_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    metadata, tensors = gguf_file.read(path)
    theirs = gguf.GGUFReader(path)
    own = {name for name in theirs.fields if name.startswith("GGUF.")}  # of the header
    assert metadata == {
        name: field.contents() for name, field in theirs.fields.items() if name not in own
    }
    assert metadata["words"] == ["", "a", "☃"]
    assert list(tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        found = tensors[tensor.name]
        assert found.kind == tensor.tensor_type
        assert found.shape == tuple(reversed(tensor.shape.tolist()))
        assert found.data.tobytes() == tensor.data.tobytes()
    assert np.array_equal(gguf.dequantize(tensors["plain"].data, tensors["plain"].kind), WEIGHT)


def test_another_alignment(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    writer.add_tensor("plain", WEIGHT)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert gguf_file.read(path)[1]["plain"].data.tobytes() == WEIGHT.tobytes()


def test_files_that_are_not_whole(tmp_path: Path) -> None:
    data = write(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    tail = WEIGHT.size // 32 * 20  # Bytes of the last tensor; the writer fills up behind it.
    for size in (*range(0, 900, 7), len(data) // 2, len(data) - tail):
        cut.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"ends|begin|empty"):
            gguf_file.read(cut)


def test_numbers_that_can_not_be(tmp_path: Path) -> None:
    """Counts and sizes that no file has, and types and versions that nobody knows."""
    path = tmp_path / "odd.gguf"
    huge, head = 2**62, b"GGUF" + struct.pack("<I", 3)
    field = head + struct.pack("<QQQ", 0, 1, 1) + b"x"
    tensor = head + struct.pack("<QQQ", 1, 0, 1) + b"x"
    for data, match in (
        (b"GGUF" + struct.pack(">I", 3), "version 0x3000000"),
        (head + struct.pack("<QQ", huge, 0), "too early"),
        (head + struct.pack("<QQ", 0, huge), "too early"),
        (head + struct.pack("<QQQ", 0, 1, huge), "too early"),
        (field + struct.pack("<I", 77), "type 77"),
        (field + struct.pack("<IIQ", 9, 4, huge), "too early"),
        (field + struct.pack("<IIQ", 9, 8, huge), "too early"),
        (field + struct.pack("<IIQ", 9, 9, 1), "array of type 9"),
        (tensor + struct.pack("<I", 2**31), "dimensions"),
        (tensor + struct.pack("<IQIQ", 1, 32, 999, 0), "999"),
        (tensor + struct.pack("<IQIQ", 1, 32, 0, huge), "within tensor 'x'"),
        (tensor + struct.pack("<IQIQ", 1, huge, 0, 0), "within tensor 'x'"),
        (tensor + struct.pack("<IQIQ", 1, 33, 3, 0), "multiple"),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=match):
            gguf_file.read(path)
