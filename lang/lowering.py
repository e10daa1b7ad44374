"""Lowering: expressions as nodes of the request graph. Used by tracing and by recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ramet.lang.errors import ProgramError
from ramet.lang.expr import Expr, Gen, RoleBegin, RoleEnd, Select, Text
from ramet.runtime import graph
from ramet.runtime.graph import Node
from ramet.runtime.graph_values import Part, plain

Parts = Callable[[str], tuple[Part, ...]]
"""Splits a text into literals and values."""


def literal_parts(text: str) -> tuple[Part, ...]:
    """A text that holds no values."""
    return (text,) if text else ()


def lower(expr: Expr, parts: Parts = literal_parts) -> tuple[type[Node], dict[str, Any]]:
    """The kind of node that an expression becomes, and the node's own fields."""
    match expr:
        case Text():
            return graph.Text, {"parts": parts(expr.text), "special": expr.special}
        case RoleBegin():
            return graph.Text, {"role": expr.role, "edge": "begin"}
        case RoleEnd():
            return graph.Text, {"role": expr.role, "edge": "end"}
        case Gen():
            return graph.Gen, {
                "name": expr.name,
                "params": expr.fields,
                "logprob_texts": expr.logprob_texts,
                "dtype": plain(expr.dtype),
                "reasoning": expr.reasoning,
            }
        case Select():
            return graph.Select, {
                "name": expr.name,
                "choices": tuple(parts(choice) for choice in expr.choices),
                "method": str(expr.method),
                "temperature": expr.temperature,
            }
        case _:
            raise ProgramError(f"cannot append {expr!r}")
