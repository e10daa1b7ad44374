"""What tests of sampling ask for, and masks as the kernels read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ramet.kernels.draws import Draws

BELOW_ONE = 1 - 2.0**-53
PLAIN = (1.0, 0, 1.0, 0.0)


def ask(
    rows: Sequence[int],
    uniforms: Sequence[Sequence[float]],
    asked: Sequence[Sequence[float]] = (),
    bans: Sequence[tuple[int, int]] = (),
    masks: torch.Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Draws:
    """Draws from rows by uniforms, plainly where nothing else is `asked`, on a device."""
    return Draws(
        torch.tensor(rows, device=device),
        torch.tensor(asked or [PLAIN] * len(rows), dtype=torch.float64, device=device),
        torch.tensor(uniforms, dtype=torch.float64, device=device).view(len(rows), -1),
        torch.tensor(bans, dtype=torch.long, device=device).view(-1, 2),
        masks,
    )


def words(allowed: torch.Tensor) -> torch.Tensor:
    """The mask words of booleans [n, vocab]."""
    n, vocab = allowed.shape
    bits = torch.zeros(n, (vocab + 31) // 32 * 32, dtype=torch.int64, device=allowed.device)
    bits[:, :vocab] = allowed
    values = (bits.view(n, -1, 32) << torch.arange(32, device=allowed.device)).sum(-1)
    return torch.where(values >= 2**31, values - 2**32, values).int()
