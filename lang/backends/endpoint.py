"""`RuntimeEndpoint`: a ramet server as a backend."""

from __future__ import annotations

from typing import NoReturn

from ramet.runtime.errors import UnsupportedFeature


class RuntimeEndpoint:
    """A ramet server. There is none yet: building one raises UnsupportedFeature."""

    def __new__(cls, base_url: str, *args: object, **kwargs: object) -> NoReturn:  # noqa: D102
        raise UnsupportedFeature(
            f"RuntimeEndpoint({base_url!r}): this version has no ramet server; OpenAI(base_url, "
            "model) runs programs on any OpenAI-compatible endpoint"
        )
