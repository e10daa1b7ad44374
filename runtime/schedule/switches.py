"""Switches: the literature's steps of scheduling, each of which can be taken back.

They are there to show what each step gains, on this engine and in the simulator. All are on in
earnest. Sharing is no switch here: a call without it says `cache=False`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Switches:
    """Which steps are taken."""

    continuous: bool = True
    """Sequences join and leave a batch at every step (Orca, Yu et al. 2022). Off: the next ones
    start when the whole batch is over."""
    paged: bool = True
    """Memory is handed out as sequences grow (vLLM, Kwon et al. 2023). Off: each one reserves what
    its longest possible output takes before it starts."""
    stall_free: bool = True
    """Decodes go on beside chunks of prompts (Sarathi-Serve, Agrawal et al. 2024). Off: they wait
    until the prompts of all that were admitted are computed."""
    foresight: bool = True
    """Eviction goes by what is known of a path's future. Off: least recently used, leaf first."""


ALL_ON = Switches()
"""What an engine does unless it is told otherwise."""
