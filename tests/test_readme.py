"""The guide in README.md: every snippet runs, in order, as one program would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ramet.lang as rm

ROOT = Path(__file__).resolve().parent.parent
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    """What the snippets before have defined; the default backend is a small engine."""
    with rm.Runtime(model="tiny", isolation="thread", pool_tokens=16384) as runtime:
        rm.set_default_backend(runtime)
        yield {"__name__": "guide"}
        rm.set_default_backend(None)
        stats = runtime.stats()
        assert stats["contexts"] == stats["running"] == stats["held_tokens"] == 0


def test_the_guide_has_snippets() -> None:
    assert len(SNIPPETS) >= 10


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(
    names: dict[str, Any], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "README.md"
    exec(compile(SNIPPETS[number], f"{path}:snippet {number}", "exec"), names)
    printed = capsys.readouterr().out
    assert printed or "print(" not in SNIPPETS[number]
    if "compile()" in SNIPPETS[number]:
        assert printed.splitlines()[-1] == "True"
    assert "Traceback" not in printed
