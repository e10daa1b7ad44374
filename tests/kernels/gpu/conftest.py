"""Kernels run in Triton's interpreter where there is no GPU: its switch is read while Triton and
the kernels are imported and run, and is off for all other tests of the process."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

NATIVE = torch.cuda.is_available()
MODULES = ("rms_norm", "rope_write", "silu_mul", "bitmask", "tree_attention", "sampling", "draw")


def _import_kernels() -> str | None:
    """Import them as these tests need them; why that can't be, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if NATIVE:
        return None
    if "triton" in sys.modules:
        kind = type(sys.modules["triton"].language.zeros).__name__
        if kind != "InterpretedFunction":
            return "triton was imported before, without its interpreter"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        for module in MODULES:
            importlib.import_module(f"ramet.kernels.gpu.{module}")
    return None


WHY_NOT = _import_kernels()


def _repair_bfloat16(patch: pytest.MonkeyPatch) -> None:
    """The interpreter keeps bfloat16 as 16-bit integers: it multiplies these, and cuts float32 off
    instead of rounding it. GPUs multiply the numbers and round to nearest, ties to even."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    dot, cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def wide(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), tl.float32)

    def exact_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, wide(a), wide(b), *rest)

    def rounding_cast(self: Any, src: Any, dst_type: Any) -> Any:
        if (src.dtype.scalar, dst_type.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, src, dst_type)
        rounded = torch.from_numpy(np.ascontiguousarray(src.data)).to(torch.bfloat16)
        return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)

    patch.setattr(InterpreterBuilder, "create_dot", exact_dot)
    patch.setattr(InterpreterBuilder, "cast_impl", rounding_cast)
    for name in ("create_fp_ext", "create_fp_trunc"):
        patch.setattr(InterpreterBuilder, name, rounding_cast)


def _patch_once(patch: pytest.MonkeyPatch) -> None:
    """A launch patches Triton's language, and every function that its kernel calls does so again,
    which takes half of the time: here it is once for each module and launch."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang
    done: set[int] = set()

    def once(fn: Any) -> Any:
        if id(fn.__globals__) in done:
            return None
        scope = original(fn)
        if not done:
            restore = scope.restore

            def finish() -> None:
                done.clear()
                restore()

            scope.restore = finish
        done.add(id(fn.__globals__))
        return scope

    patch.setattr(interpreter, "_patch_lang", once)


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if WHY_NOT is not None:
        pytest.skip(WHY_NOT)
    if NATIVE:
        yield
        return
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    _repair_bfloat16(monkeypatch)
    _patch_once(monkeypatch)
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def device() -> torch.device:
    """Where the tensors of a test lie."""
    return torch.device("cuda" if NATIVE else "cpu")


def _tree_items(
    source: random.Random, depth: int, long: int, most: int = 60
) -> tuple[list[tuple[int, int, int, int, int]], list[int]]:
    """Items and row positions of a depth-first batch of at most about `most` rows: nodes of a tree
    of this depth over scattered slots, with empty items among them, in any order."""
    free = list(range(0, 2000, 8))
    source.shuffle(free)
    items: list[tuple[int, int, int, int, int]] = []
    row_pos: list[int] = []

    def visit(level: int, position: int) -> None:
        first, end = len(row_pos), position
        segments = []
        for _ in range(source.randint(1, 2)):
            length = source.randint(1, 8)
            segments.append((free.pop(), length, end))
            end += length
        if level == 0 and long:
            segments.append((2100, long, end))
            end += long
        new = min(source.choice([0, 1, 1, 2, 30]), end - position)
        row_pos.extend(range(end - new, end))
        for _ in range(source.randint(1, 3) if level < depth and len(row_pos) < most else 0):
            visit(level + 1, end)
        if len(row_pos) == first:
            row_pos.append(end - 1)
        items.extend((slot, length, first, len(row_pos), pos) for slot, length, pos in segments)
        items.append((free[0], source.choice([0, 3]), first, first, position))

    visit(0, 0)
    source.shuffle(items)
    return items, row_pos


@pytest.fixture
def tree_items() -> Any:
    """The function that makes trees."""
    return _tree_items


def _tree_batches(source: random.Random, vocab: int) -> list[types.SimpleNamespace]:
    """Steps of a model: a prompt in two chunks, then three branches of it that grow token by token
    in scattered slots. Each has what `Rows` asks for."""
    slots = source.sample(range(64), 30)
    prompt, branches = slots[:12], [slots[12 + 6 * b : 18 + 6 * b] for b in range(3)]

    def step(rows: list[tuple[int, int]], items: list[tuple[int, ...]]) -> types.SimpleNamespace:
        names = ("slot_start", "length", "row_start", "row_end", "key_pos")
        lists = dict(zip(names, map(list, zip(*items, strict=True)), strict=True))
        return types.SimpleNamespace(
            token_ids=[source.randrange(vocab) for _ in rows],
            positions=[position for _, position in rows],
            slots=[slot for slot, _ in rows],
            items=types.SimpleNamespace(**lists),
        )

    steps = []
    for low, high in ((0, 7), (7, 12)):
        items = [(prompt[p], 1, max(p - low, 0), high - low, p) for p in range(high)]
        steps.append(step([(prompt[p], p) for p in range(low, high)], items))
    for count in range(6):
        items = [(prompt[p], 1, 0, 3, p) for p in range(12)]
        items += [
            (b[i], 1, r, r + 1, 12 + i) for r, b in enumerate(branches) for i in range(count + 1)
        ]
        steps.append(step([(b[count], 12 + count) for b in branches], items))
    return steps


@pytest.fixture
def tree_batches() -> Any:
    """The function that makes steps of a model."""
    return _tree_batches
