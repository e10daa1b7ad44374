"""A benchmark's peer without a model: the real protocol and execution over a system that answers.

`interpreter(folder, how)` makes a program that can stand for a peer's interpreter. `how` says what
it does: "answers", "refuses" (to load), "dies" or "stalls" (in the first run), "babbles" (writes
lines that are no answers).
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

PEERS = Path(__file__).resolve().parents[2] / "programs" / "benchmarks" / "peers"

SCRIPT = """#!{python}
import sys
sys.path[:0] = [{helpers!r}, {peers!r}]
import fake_peer
fake_peer.main({how!r})
"""


def interpreter(folder: Path, how: str = "answers") -> str:
    """The path of an executable that takes a script and its arguments, and is the peer itself."""
    path = folder / f"python-that-{how}"
    helpers = str(Path(__file__).resolve().parent)
    path.write_text(
        SCRIPT.format(python=sys.executable, helpers=helpers, peers=str(PEERS), how=how)
    )
    path.chmod(0o755)
    return str(path)


class Fake:
    """Answers each call at once; bytes are tokens."""

    version, settings, constraints = "fake 1", "none", False

    def __init__(self, how: str = "answers") -> None:
        self.how = how
        self.seen: list[tuple[str, dict[str, Any]]] = []
        """Prompts and what was asked for, in order."""
        self.batches: list[int] = []
        self._calls: list[Any] = []

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    def detokenize(self, ids: list[int]) -> str:
        return bytes(ids).decode()

    def begin(self) -> None:
        if self.how == "dies":
            sys.exit("on fire")
        if self.how == "stalls":
            import time

            time.sleep(60)

    def add(self, calls: list[Any]) -> None:
        self.batches.append(len(calls))
        self._calls += calls

    def finished(self) -> list[tuple[Any, Any]]:
        import peer

        call = self._calls.pop()
        self.seen.append((self.detokenize(call.ids), call.step))
        if call.choices:
            return [(call, peer.Result(picked=0))]
        count = call.step["free_tokens"] if call.step["schema"] else call.step["max_tokens"]
        return [(call, peer.Result([[120] * count for _ in range(call.step["n"])]))]


def main(how: str) -> None:
    """Be a peer."""
    import peer

    def load(folder: str | None, gguf: str | None, cores: int) -> Fake:
        if how == "refuses":
            raise ValueError("no such weights")
        return Fake(how)

    if how == "babbles":
        print("hello", flush=True)
    module: Any = types.ModuleType("on_vllm")
    module.load = load
    sys.modules["on_vllm"] = module
    sys.argv[1:] = sys.argv[2:]  # The first is the script that an interpreter would run.
    peer.main()
