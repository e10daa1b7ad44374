"""Counters: what the engine did, cumulative, settled before a caller wakes."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class Counters:
    """Counts over the engine's life; token counts as defined in the tree and the calls.

    `prompt_tokens` and `cached_tokens` are per sample: the length of its path at the start of its
    call, and how much of that was not charged to it.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    head_rows: int = 0
    """Rows of logits made from stored hidden states."""
    peak_running: int = 0
    queue_seconds: float = 0.0
    run_seconds: float = 0.0
