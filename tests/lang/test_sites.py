from __future__ import annotations

import contextlib
import inspect
from typing import Any

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.sites import call_site, raised_at


def line() -> int:
    """The caller's line."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_site_is_the_innermost_line_outside_of_the_language() -> None:
    assert call_site() == f"{__file__}:{line()}"
    assert (lambda: call_site())() == f"{__file__}:{line()}"


def test_lines_of_with_blocks_are_the_users(backend: FakeBackend) -> None:
    lines: list[int] = []

    def body(s: rm.ProgramState) -> None:
        with s.user():
            lines.append(line() - 1)
            s += "a"
            lines.append(line() - 1)
        with s.var_scope("v"), contextlib.suppress(KeyError):
            lines.insert(2, line() - 1)
            s += "b"
            lines.append(line() - 1)
        with s.copy() as twin:
            lines.append(line() - 1)
            twin += "c"
            lines.append(line() - 1)

    interpreted = rm.function(body).run().graph()
    traced = rm.function(body).trace()
    assert [node.kind for node in traced.nodes] == [node.kind for node in interpreted.nodes]
    for graph in (interpreted, traced):
        files = {node.site.rpartition(":")[0] for node in graph.nodes}
        assert files == {__file__}
    sites = [int(node.site.rpartition(":")[2]) for node in interpreted.nodes]
    assert sites == [int(node.site.rpartition(":")[2]) for node in traced.nodes]
    assert set(lines[:3] + lines[-2:]) <= set(sites)


def test_an_errors_line_is_the_innermost_of_the_users() -> None:
    def raises() -> Any:
        raise KeyError("x")

    with pytest.raises(KeyError) as caught:
        raises()
    first = inspect.getsourcelines(raises)[1]
    assert raised_at(caught.value) == f"{__file__}:{first + 1}"
    with pytest.raises(rm.InvalidArgument) as refused:
        rm.gen("x", max_tokens=-1)
    assert raised_at(refused.value) == f"{__file__}:{line() - 1}"
    assert raised_at(KeyError("never raised")) is None
