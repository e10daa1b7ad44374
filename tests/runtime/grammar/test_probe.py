from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.front_ends import source_of
from ramet.runtime.grammar.limits import LARGE, USUAL
from ramet.runtime.grammar.probe import source_apart
from ramet.runtime.grammar.spec import Constraint

LONG = Constraint(
    "ebnf",
    "root ::= r0\n"
    + "\n".join(f'r{i} ::= r{i + 1} "{chr(97 + i % 26)}" r{i + 1} | "x"' for i in range(60))
    + '\nr60 ::= "y"',
)


def test_it_finds_what_is_found_here() -> None:
    constraint = Constraint("ebnf", 'root ::= "a" root? "b"')
    assert source_apart(constraint, USUAL, 60) == source_of(constraint)
    with pytest.raises(GrammarError, match="line 1, column 10: there is no rule x"):
        source_apart(Constraint("ebnf", "root ::= x"), USUAL, 60)


def test_it_ends_at_its_deadline() -> None:
    before = time.monotonic()
    with pytest.raises(GrammarError, match=r"not compiled within 0\.5 s"):
        source_apart(LONG, LARGE, 0.5)
    assert time.monotonic() - before < 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes have parents on POSIX")
def test_it_ends_with_the_process_that_asked() -> None:
    code = """
import json, subprocess, sys
words = "|".join(f"w{i * 7919 % 10**7}" for i in range(60_000))
order = {"constraint": {"kind": "regex", "text": words}, "limits": {}, "seconds": 600}
child = subprocess.Popen([sys.executable, "-m", "ramet.runtime.grammar.probe"],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
child.stdin.write(json.dumps(order).encode())
child.stdin.close()
print(child.pid, flush=True)
sys.stdin.read()
"""
    asking = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert asking.stdout
    pid = int(asking.stdout.readline())
    time.sleep(2)  # It is at work.
    assert _is_alive(pid)
    asking.communicate("")
    deadline = time.monotonic() + 20
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
