"""A model of four letters: what it writes depends on the whole path, and meets what prompts say."""

from __future__ import annotations

import functools
import hashlib

import torch
from hypothesis import strategies as st
from scripted_engine import Path

VOCAB = 259
LETTERS = 3
"""Prompts are of tokens 0, 1 and 2, which the model mostly writes too, so that paths meet."""
END = 3
"""What it writes now and then to end."""


@functools.lru_cache(maxsize=1 << 15)
def script(path: Path) -> torch.Tensor:
    """Logits of four likely tokens, which depend on the whole path."""
    digest = hashlib.blake2b(bytes(path), digest_size=4).digest()
    logits = torch.full((VOCAB,), -30.0, dtype=torch.float64)
    logits[: LETTERS + 1] = torch.tensor([byte / 64 for byte in digest], dtype=torch.float64)
    logits[END] -= 2.0
    return logits


@st.composite
def prompts(draw: st.DrawFn, longest: int) -> list[int]:
    """A beginning of one of two stems, and a tail of up to three tokens; at least one token."""
    code = draw(st.integers(0, 2 * (longest - 2) * LETTERS**3 - 1))
    code, stem = divmod(code, 2)
    code, cut = divmod(code, longest - 2)
    ids = [(i * i + stem * i + stem) % 7 % LETTERS for i in range(cut)]
    return [*ids, *(code // LETTERS**i % LETTERS for i in range(1 + code % 3))]
