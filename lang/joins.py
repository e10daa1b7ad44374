"""Joins: which variables forks bring back to their parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ramet.lang.values import GatheredValue, Value


class _Fork(Protocol):
    @property
    def variables(self) -> Mapping[str, list[Value]]: ...

    @property
    def inherited(self) -> Mapping[str, int | None]: ...


def inheritance(variables: Mapping[str, list[Value]]) -> dict[str, int | None]:
    """What a fork notes of its parent's variables: of one that an earlier join brought, how many
    values it has had; None of any other."""
    return {
        name: len(values) if isinstance(values[-1], GatheredValue) else None
        for name, values in variables.items()
    }


def is_new(branch: _Fork, name: str) -> bool:
    """Whether a join gathers a variable of a fork: one that its parent hadn't, or had from an
    earlier join and the fork has set again, as in a loop of forks and joins."""
    if name not in branch.variables:
        return False
    if name not in branch.inherited:
        return True
    before = branch.inherited[name]
    return before is not None and len(branch.variables[name]) > before


def new_names(branches: Sequence[_Fork]) -> list[str]:
    """The variables that a join of `branches` gathers."""
    names = dict.fromkeys(name for branch in branches for name in branch.variables)
    return [name for name in names if any(is_new(branch, name) for branch in branches)]
