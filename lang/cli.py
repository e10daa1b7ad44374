"""The `ramet` command: runs programs on the embedded Runtime, and says what models there are.

It is the command line of the language, and only assembles what the rooms offer.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import inspect
import itertools
import json
import runpy
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import click

from ramet.lang.compiled import CompiledFunction
from ramet.lang.program import Function
from ramet.runtime.config import DTYPES, ISOLATIONS, POLICIES, RuntimeConfig
from ramet.runtime.errors import RametError
from ramet.runtime.graph import Graph
from ramet.runtime.metrics import Report
from ramet.runtime.runtime import Runtime

PROGRAM_FAILED = 1
"""Exit status when the program raised an exception of its own."""
REFUSED = 2
"""Exit status when ramet refused something; also click's, for wrong usage."""
INTERRUPTED = 130
"""Exit status after Ctrl-C."""

_ALLOWED = {"dtype": DTYPES, "policy": POLICIES, "isolation": ISOLATIONS}
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


def _int_or_word(value: str | int) -> int | str:
    """An int if it looks like one; RuntimeConfig knows which words are allowed."""
    try:
        return int(value)
    except ValueError:
        return value


def _runtime_options(command: _CommandT) -> _CommandT:
    """One option per field of RuntimeConfig, with the field's own words as help."""
    words = _field_docs()
    for field in reversed(dataclasses.fields(RuntimeConfig)):
        kind: Any = click.Choice(_ALLOWED[field.name]) if field.name in _ALLOWED else None
        if kind is None and "int" in str(field.type):
            kind = _int_or_word if "str" in str(field.type) else click.INT
        elif kind is None and "float" in str(field.type):
            kind = click.FLOAT
        option = click.option(
            "--" + field.name.replace("_", "-"),
            field.name,
            type=kind,
            metavar="INTEGER|TEXT" if kind is _int_or_word else None,
            default=field.default,
            show_default=True,
            help=words.get(field.name),
        )
        command = option(command)
    return command


def _field_docs() -> dict[str, str]:
    """The text below each field of RuntimeConfig."""
    body = ast.parse(inspect.getsource(RuntimeConfig)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: doc.value.value.replace("`", "")
        for field, doc in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }


def _version() -> str:
    try:
        return importlib.metadata.version("ramet")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="ramet")
def main() -> None:
    """Run structured-generation programs on the embedded engine."""


@main.command(context_settings={"allow_interspersed_args": False})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_runtime_options
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(file: Path, args: tuple[str, ...], **fields: Any) -> None:
    """Run the program FILE with the default backend set up as the options say.

    What follows FILE is the program's own (a `--` in between is dropped). A report of what was
    computed and what was reused is printed on the error stream when it ends.
    """
    try:
        RuntimeConfig(**fields)
    except RametError as error:
        _refuse(str(error))
    own = args[1:] if args[:1] == ("--",) else args
    sys.exit(_Run(file, own, fields).status())


@main.command()
@click.argument("program", metavar="FILE:FUNCTION")
@click.option("--json", "as_json", is_flag=True, help="Print the graph as data, not as a chart.")
@click.option(
    "--set",
    "constants",
    metavar="NAME=JSON",
    multiple=True,
    help="An argument that is known, as trace() takes it; may be given several times.",
)
def graph(program: str, as_json: bool, constants: tuple[str, ...]) -> None:
    """Print the request graph of a program as a Mermaid flowchart; no model is called.

    What a program does with the values of its arguments and calls, such as loops over them, must be
    known: give arguments with --set.
    """
    path, _, name = program.rpartition(":")
    if not path or not Path(path).is_file():
        _refuse(f"{program}: must be FILE:FUNCTION, with a file that exists")
    sys.path.insert(0, str(Path(path).resolve().parent))
    sys.argv = [path]
    found = runpy.run_path(path).get(name)
    if isinstance(found, CompiledFunction) and not constants:
        click.echo(_drawn(found.graph, as_json), nl=False)
        return
    if not isinstance(found, Function):
        _refuse(f"{path} has no program {name!r} (a function under @ramet.lang.function)")
    try:
        traced = found.trace(**dict(map(_constant, constants)))
    except RametError as error:
        _refuse(str(error))
    click.echo(_drawn(traced, as_json), nl=False)


@main.command()
def models() -> None:
    """List the built-in models, and say how to name others."""
    from ramet.runtime.builtin_model import list_models

    rows = [(m.name, m.description, m.where, "cached" if m.cached else "") for m in list_models()]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    click.echo("or a Hugging Face folder, a .gguf file, or a hub id such as Qwen/Qwen3-0.6B")


class _Run:
    """One `ramet run`."""

    def __init__(self, file: Path, args: tuple[str, ...], fields: dict[str, Any]) -> None:
        self._file = file
        self._args = args
        self._fields = fields
        self._runtime: Runtime | None = None
        self._loading = 0.0

    def status(self) -> int:
        """Run the program, report, end the engine; the exit status."""
        from ramet.lang import set_default_backend

        set_default_backend(self._start)
        begun = time.perf_counter()
        try:
            status = self._program()
            self._report(time.perf_counter() - begun)
        finally:
            if self._runtime is not None:
                self._runtime.shutdown()
        return status

    def _start(self) -> Runtime:
        begun = time.perf_counter()
        self._runtime = Runtime(**self._fields)
        self._loading = time.perf_counter() - begun
        return self._runtime

    def _program(self) -> int:
        # As `python FILE` would: its folder is where its imports are looked up first.
        sys.argv = [str(self._file), *self._args]
        sys.path.insert(0, str(self._file.resolve().parent))
        try:
            runpy.run_path(str(self._file), run_name="__main__")
        except SystemExit as end:
            return _exit_status(end)
        except KeyboardInterrupt:
            click.echo("ramet: interrupted", err=True)
            return INTERRUPTED
        except RametError as error:
            click.echo(f"ramet: {self._place(error)}{type(error).__name__}: {error}", err=True)
            return REFUSED
        except BaseException as error:
            shown = self._own_trace(error.__traceback__)
            traceback.print_exception(type(error), error, shown)
            return PROGRAM_FAILED
        return 0

    def _report(self, seconds: float) -> None:
        from ramet.lang import global_config

        if self._runtime is None:
            if global_config.default_backend is not None:
                message = "the program set a backend of its own: the options had no effect"
                click.echo(f"ramet: {message}", err=True)
            return
        try:
            stats = self._runtime.stats()
        except RametError:  # The engine is gone, and the program has said why.
            return
        sys.stdout.flush()
        report = Report.of(stats, seconds - self._loading)
        click.echo(f"ramet: {report}; loading took {self._loading:.1f} s", err=True)

    def _own_trace(self, trace: TracebackType | None) -> TracebackType | None:
        """The part of a traceback that begins in the program."""
        own = trace
        while own is not None and own.tb_frame.f_code.co_filename != str(self._file):
            own = own.tb_next
        return own

    def _place(self, error: BaseException) -> str:
        """The last line of the program that led to `error`."""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(self._file)]
        return f"{self._file}:{lines[-1]}: " if lines else ""


def _drawn(graph: Graph, as_json: bool) -> str:
    return json.dumps(graph.to_dict(), indent=2) if as_json else graph.to_mermaid()


def _constant(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        _refuse(f"--set {text}: must be NAME=JSON")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # A plain word needs no quotes.


def _exit_status(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return int(end.code or 0)
    click.echo(end.code, err=True)
    return PROGRAM_FAILED


def _refuse(message: str) -> NoReturn:
    click.echo(f"ramet: {message}", err=True)
    sys.exit(REFUSED)


if __name__ == "__main__":
    main()
