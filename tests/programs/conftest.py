from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import ramet.lang as rm

FOLDER = Path(__file__).resolve().parents[2] / "programs"


@pytest.fixture
def load() -> Callable[[str], ModuleType]:
    """Imports a program of `programs/` by its name, without running its main."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def tiny() -> Iterator[rm.Runtime]:
    """The default backend: a real engine on the model `tiny`."""
    with rm.Runtime(model="tiny", isolation="thread") as runtime:
        rm.set_default_backend(runtime)
        yield runtime
        rm.set_default_backend(None)
        stats = runtime.stats()
        assert stats["contexts"] == stats["running"] == stats["held_tokens"] == 0
