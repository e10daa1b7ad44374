"""Skipping: whether what `%ignore` skips can be written out as any other part of a text.

A skip is taken as long as it can be. That makes no difference where no terminal begins with a
character with which a whole skip could go on, as none begins with a blank where blanks are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from ramet.runtime.grammar.rules.comparing import Comparisons
from ramet.runtime.grammar.rules.nodes import Nodes


def skips_fit_in(nodes: Nodes, terminals: Sequence[int], skips: Sequence[int]) -> bool:
    """Whether a skip may as well end wherever it is whole."""
    comparisons = Comparisons(nodes, [*terminals, *skips])
    onward = 0
    for skip in skips:
        for other in skips:
            onward |= comparisons.onward(skip, other)[1]
    begun = 0
    for terminal in terminals:
        begun |= comparisons.first[terminal]
    return not onward & comparisons.alphabet.lead_bytes(begun)
