"""Programs on any OpenAI-compatible endpoint: `OpenAI` is the backend, the rest is its rooms."""

from ramet.lang.backends.openai.backend import OpenAI

__all__ = ["OpenAI"]
