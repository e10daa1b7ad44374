"""What a user sees while something slow happens once: lines and bars on standard error.

A bar is drawn on a terminal only; a redirected or absent standard error gets plain lines.
"""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def say(text: str) -> None:
    """Print one line about what is going on."""
    if sys.stderr is not None:
        print(f"ramet: {text}", file=sys.stderr, flush=True)


def bar(total: int, text: str, *, size: bool = False) -> Any:
    """A tqdm bar up to `total`, in bytes when `size`; silent where no terminal shows it."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    unit = {"unit": "B", "unit_scale": True} if size else {}
    return tqdm(total=total, desc=text, file=sys.stderr, disable=not shown, leave=False, **unit)
