"""Call sites: where in the user's program something was written."""

from __future__ import annotations

import sys
import traceback
from types import FrameType


def call_site() -> str:
    """The innermost line of code that isn't the language's own, as file:line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def raised_at(error: BaseException) -> str | None:
    """The innermost line of the user's from which `error` was raised, as file:line."""
    site = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not _is_own(frame):
            site = f"{frame.f_code.co_filename}:{line}"
    return site


def _is_own(frame: FrameType) -> bool:
    # A `with` block of a state's enters and leaves it through contextlib; others of Python's own
    # modules call back, too.
    name = str(frame.f_globals.get("__name__"))
    return name.startswith("ramet.") or name.partition(".")[0] in sys.stdlib_module_names
