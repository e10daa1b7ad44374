"""Limits: what the mask engine may spend on one grammar before it gives up, with an error."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one grammar's automaton."""

    compile_fuel: int = 1_000_000
    """Steps of building; about 50 a microsecond."""
    step_fuel: int = 200_000
    """Steps of the automaton per token; about 14 a microsecond."""
    states: int = 100_000
    """States of the automaton; about a kilobyte each."""


USUAL: Final = Limits()
"""What is tried at once: some 20 ms at most."""
LARGE: Final = Limits(compile_fuel=50_000_000, step_fuel=1_000_000, states=250_000)
"""What a process of its own tries when that isn't enough."""
MAX_TOGETHER: Final = 16
"""Languages that one terminal may meet (`A & B`) to be built at once; 25 can take hours."""
