"""The likeliest token of each row, found while the output head is multiplied; logits that nobody
else wants are never written.

Each panel of the head leaves, for every row, its largest logit and that logit's lane; once all
panels are there, a row takes the first of the largest ones. So it doesn't matter which thread did
what.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.fields import NUM_JOB, NUM_LINEAR, Job, Linear
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import (
    F32,
    FLOATS,
    I32,
    INTS,
    LANES,
    Code,
    i32_array,
    i64_array,
    loop,
    routine,
)
from ramet.kernels.cpu.fused.phases import finish, take, wait
from ramet.kernels.cpu.fused.tile import PANEL

_NOTES = 2 * 4 * LANES
"""Bytes that a panel leaves for a block of 16 rows: their largest logits, then the lanes."""
_BIT = ir.IntType(1)
_BITS = ir.VectorType(_BIT, LANES)


def notes_bytes(rows: int, outputs: int) -> int:
    """Bytes of what all panels of a head with so many outputs leave."""
    return -(-rows // LANES) * -(-outputs // PANEL) * _NOTES


@intrinsic
def _note(_context: Any, sums: Any, scales: Any, count: Any, target: Any) -> Any:
    """Of a row's sums in a panel, the first `count`, times their scales: write the largest (NaN, if
    there is one) and the first lane that has it."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        sums, scales, count, target = arguments
        many = code.splat(builder.trunc(count, I32))
        vectors, strange = [], []
        for half in range(PANEL // LANES):
            lanes = ir.Constant(INTS, [half * LANES + lane for lane in range(LANES)])
            there = builder.icmp_signed("<", lanes, many)
            here = [code.load(code.at(at, 4 * LANES * half), FLOATS, 4) for at in (sums, scales)]
            product = code.exactly("fmul", *here)
            product = builder.select(there, product, code.floats(float("-inf")))
            vectors.append(product)
            strange.append(builder.fcmp_unordered("uno", product, product))
        best = vectors[0]
        for vector in vectors[1:]:
            best = builder.select(builder.fcmp_ordered(">", vector, best), vector, best)
        largest = code.call(f"llvm.vector.reduce.fmax.v{LANES}f32", F32, best)
        whole, wide = ir.IntType(LANES), ir.IntType(PANEL)
        found = ir.Constant(wide, 0)
        for half, vector in enumerate(vectors):
            same = builder.fcmp_ordered("==", vector, code.splat(largest))
            bits = builder.zext(builder.bitcast(same, whole), wide)
            found = builder.or_(found, builder.shl(bits, ir.Constant(wide, LANES * half)))
        lane = builder.cttz(found, ir.Constant(_BIT, 0))
        any_strange = builder.or_(*strange)
        some = code.call(f"llvm.vector.reduce.or.v{LANES}i1", _BIT, any_strange)
        largest = builder.select(some, ir.Constant(F32, float("nan")), largest)
        code.store(largest, target)
        code.store(lane, code.at(target, 4 * LANES))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), write


@intrinsic
def _first_largest(_context: Any, notes: Any, panels: Any, best: Any, places: Any) -> Any:
    """For 16 rows: write the largest of their panels' largest logits, and the first panel that has
    it."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        notes, panels, best_at, places_at = arguments

        def add_panel(panel: Any, so_far: list[Any]) -> list[Any]:
            best, places, strange = so_far
            value = code.load(code.at(notes, code.times(panel, _NOTES)), FLOATS, 4)
            better = builder.fcmp_ordered(">", value, best)
            here = builder.select(better, code.splat(builder.trunc(panel, I32)), places)
            seen = builder.or_(strange, builder.fcmp_unordered("uno", value, value))
            return [builder.select(better, value, best), here, seen]

        nothing = [code.floats(float("-inf")), code.ints(0), ir.Constant(_BITS, [0] * LANES)]
        new, here, seen = loop(code, panels, nothing, add_panel)
        code.store(builder.select(seen, code.floats(float("nan")), new), best_at)
        code.store(here, places_at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), write


@inlined
def note_largest(line, sums, rows, first_row, panel):
    """Note what a tile's sums, `[rows, 32]`, say of its rows."""
    outputs = line[Linear.OUTPUTS]
    panels = (outputs + PANEL - 1) // PANEL
    count = min(PANEL, outputs - panel * PANEL)
    scales = line[Linear.SCALES] + panel * (4 * PANEL)
    for row in range(rows):
        at = first_row + row
        target = line[Linear.TO] + (at // LANES * panels + panel) * _NOTES + at % LANES * 4
        _note(sums + row * (4 * PANEL), scales, count, target)


@routine
def choose(job_at, phase, thread):
    """A phase: each row's token and its logit, by what the panels have noted."""
    job = i64_array(job_at, (NUM_JOB,))
    line = i64_array(job[Job.PIECES], (NUM_LINEAR,))
    rows, threads = job[Job.ROWS], job[Job.THREADS]
    panels = (line[Linear.OUTPUTS] + PANEL - 1) // PANEL
    total = (rows + LANES - 1) // LANES
    task = take(phase, total, thread, threads)
    while task >= 0:
        notes = line[Linear.TO] + task * panels * _NOTES
        at = task * LANES * 4
        _first_largest(notes, panels, job[Job.LARGEST] + at, job[Job.CHOSEN] + at)
        chosen = i32_array(job[Job.CHOSEN] + at, (LANES,))
        for row in range(LANES):
            panel = chosen[row]
            lanes = i32_array(notes + panel * _NOTES + 4 * LANES, (LANES,))
            chosen[row] = panel * PANEL + lanes[row]
        finish(phase)
        task = take(phase, total, thread, threads)
    wait(phase, total, 0, 0)
