"""The folder of compiled kernels: which one, and when others are removed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from ramet.kernels import code_folder
from ramet.kernels.code_folder import KEPT_DAYS, is_complete, mark_complete, open_folder

DAY = 24 * 3600


def aged(folder: Path, days: float) -> Path:
    """A folder with code in it that was opened so many days ago."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.nbc").write_bytes(b"code")
    then = time.time() - days * DAY
    os.utime(folder, (then, then))
    return folder


def test_it_is_made_and_found_again(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "a" / "kernels")
    assert folder is not None
    assert folder.parent == tmp_path / "a" / "kernels"
    assert list(folder.iterdir()) == []
    assert open_folder(folder.parent) == folder
    assert not is_complete(folder)
    mark_complete(folder)
    assert is_complete(folder)


def test_one_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert open_folder(tmp_path / "file" / "kernels") is None
    mark_complete(tmp_path / "file" / "kernels")  # Nothing to be told, either.


def test_what_nobody_has_opened_for_long_is_removed(tmp_path: Path) -> None:
    old = [aged(tmp_path / (digit * 16), KEPT_DAYS + 1) for digit in "0a"]
    young = [aged(tmp_path / ("1" * 16), KEPT_DAYS - 1), aged(tmp_path / ("f" * 16), 0)]
    others = [aged(tmp_path / name, 1000) for name in ("notes", "0" * 15, "A" * 16)]
    (tmp_path / "c0ffee00c0ffee00").touch()  # A file.
    os.utime(tmp_path / "c0ffee00c0ffee00", (0, 0))
    own = open_folder(tmp_path)
    assert not any(folder.exists() for folder in old)
    assert all((folder / "kernel.nbc").exists() for folder in (*young, *others))
    assert own is not None
    assert own.exists()


def test_ones_own_is_kept_however_old(tmp_path: Path) -> None:
    own = open_folder(tmp_path)
    assert own is not None
    aged(own, 1000)
    assert open_folder(tmp_path) == own
    assert (own / "kernel.nbc").exists()
    assert own.stat().st_mtime > time.time() - DAY


def test_starts_of_several_versions_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens a folder has it, whatever others remove meanwhile."""
    names = {f"version-{number}": f"{number:016x}" for number in range(8)}
    monkeypatch.setattr(code_folder, "_name", lambda: names[threading.current_thread().name])
    for number in range(100, 150):
        aged(tmp_path / f"{number:016x}", KEPT_DAYS + 1)
    found: dict[str, Path | None] = {}

    def start() -> None:
        found[threading.current_thread().name] = open_folder(tmp_path)

    threads = [threading.Thread(target=start, name=name) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: tmp_path / names[name] for name in names}
    assert sorted(tmp_path.iterdir()) == sorted(tmp_path / name for name in names.values())
