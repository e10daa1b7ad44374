"""The kinds of work that a team does."""

from __future__ import annotations

from ramet.kernels.cpu.fused.lanes import routine
from ramet.kernels.cpu.fused.step import logits, step

STEP, LOGITS = 0, 1


@routine
def perform(kind, job, thread):
    """This thread's part of a job, whose line of numbers is at an address."""
    if kind == STEP:
        step(job, thread)
    else:
        logits(job, thread)
