"""The package that computes masks, loaded when it is first needed."""

from __future__ import annotations

from typing import Any

from ramet.runtime.errors import UnsupportedFeature


def mask_engine() -> Any:
    """The package `llguidance`; raises UnsupportedFeature where it isn't installed."""
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedFeature(
            "constraints need the package llguidance, which is not installed"
        ) from error
    return llguidance
