from pathlib import Path

import pytest

from ramet.runtime.config import RuntimeConfig, auto_pool_tokens, cache_dir, worker_environment
from ramet.runtime.errors import InvalidArgument


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("model", 3),
        ("device", "tpu"),
        ("device", "cpu:1"),
        ("device", "cuda:x"),
        ("dtype", "int4"),
        ("policy", "random"),
        ("isolation", "fiber"),
        ("page_size", 0),
        ("page_size", True),
        ("chunk_tokens", -1),
        ("max_running", 1.5),
        ("target_step_ms", 0),
        ("target_step_ms", -5.0),
        ("target_step_ms", float("nan")),
        ("target_step_ms", float("inf")),
        ("target_step_ms", 10**400),
        ("target_step_ms", True),
        ("target_step_ms", "100"),
        ("max_context", 0),
        ("pool_tokens", 0),
        ("pool_tokens", 8),
        ("pool_tokens", "all"),
        ("seed", None),
        ("seed", 2**70),
    ],
)
def test_a_bad_field_is_refused_by_name(field: str, value: object):
    with pytest.raises(InvalidArgument, match=field):
        RuntimeConfig(**{field: value})  # type: ignore[arg-type]


def test_a_target_may_be_any_number_of_milliseconds():
    assert RuntimeConfig().target_step_ms is None
    assert RuntimeConfig(target_step_ms=100).target_step_ms == 100
    assert RuntimeConfig(target_step_ms=0.5).target_step_ms == 0.5


def test_a_path_is_a_model():
    assert RuntimeConfig(model=Path("/tmp/x")).model == "/tmp/x"  # type: ignore[arg-type]


def test_the_pool_is_sized_in_whole_pages():
    assert auto_pool_tokens(1 << 40, 1000, 8192, 16) == 65_536
    assert auto_pool_tokens(4_000_000, 1000, 8192, 16) == 992
    assert auto_pool_tokens(0, 1000, 8192, 16) == 16


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAMET_CACHE", "/somewhere")
    assert cache_dir() == Path("/somewhere")
    monkeypatch.delenv("RAMET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_dir().parts[-1] in ("ramet", "Cache")


def test_an_engine_process_does_not_spin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert worker_environment()["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert worker_environment()["OMP_WAIT_POLICY"] == "active"


def test_a_bound_that_the_policy_has_not_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="max_overtakes=5: only policy"):
        RuntimeConfig(policy="fcfs", max_overtakes=5)
    assert RuntimeConfig(max_overtakes=5).max_overtakes == 5
    for value in (0, -1, True, "7", 2.5):
        with pytest.raises(InvalidArgument, match=r"max_overtakes=.* from 1 to 2147483647 or None"):
            RuntimeConfig(max_overtakes=value)  # type: ignore[arg-type]
