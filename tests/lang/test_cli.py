from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ramet.lang.cli import main
from ramet.runtime.config import RuntimeConfig

pytestmark = pytest.mark.timeout(180)

PROGRAM = """
import sys
import helper
import ramet.lang as rm

@rm.function
def ask(s, question):
    s += question + rm.gen("answer", max_tokens=4, temperature=0, ignore_eos=True)

if __name__ == "__main__":
    states = ask.run_batch([{"question": "the same prefix %d" % i} for i in range(3)])
    print(len(states), helper.WORD, sys.argv[1:])
"""


def _ramet(
    tmp_path: Path, program: str, *args: str, options: Sequence[str] = ("--model", "tiny")
) -> subprocess.CompletedProcess[str]:
    """Run `program` through the command in a process of its own."""
    (tmp_path / "helper.py").write_text("WORD = 'helped'\n")
    (tmp_path / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "ramet.lang.cli", "run", *options, "program.py", *args],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(_absolute, sys.path)))},
    )


def _absolute(entry: str) -> str:
    return os.path.abspath(entry) if Path(entry, "ramet").is_dir() else ""


def test_a_program_runs_with_its_arguments_and_a_report(tmp_path: Path) -> None:
    done = _ramet(tmp_path, PROGRAM, "--", "--model", "mine", "x")
    assert (done.returncode, done.stdout) == (0, "3 helped ['--model', 'mine', 'x']\n"), done.stderr
    report = done.stderr.splitlines()[-1]
    assert report.startswith("ramet: 3 calls in ")
    assert "12 generated" in report
    assert "hit rate" in report
    assert "of the optimum" in report


def test_a_program_that_needs_no_engine_starts_none_and_reports_nothing(tmp_path: Path) -> None:
    done = _ramet(tmp_path, "print('hello')", options=())
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_a_programs_exception_shows_its_own_traceback(tmp_path: Path) -> None:
    done = _ramet(tmp_path, "def f():\n    return 1 / 0\n\nf()\n")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert 'program.py", line 4' in done.stderr
    assert "runpy" not in done.stderr
    assert "cli.py" not in done.stderr


def test_a_syntax_error_is_the_programs_too(tmp_path: Path) -> None:
    done = _ramet(tmp_path, "x = = 1\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "cli.py" not in done.stderr


def test_a_refusal_is_one_line_with_its_place(tmp_path: Path) -> None:
    program = "import ramet.lang as rm\n\nrm.get_server_info()\n"
    done = _ramet(tmp_path, program, options=("--model", "no-such-model"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("ramet: program.py:3: InvalidArgument: model='no-such-model'")


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [("sys.exit()", 0, ""), ("sys.exit(7)", 7, ""), ("sys.exit('told')", 1, "told\n")],
)
def test_the_programs_exit_status_is_the_commands(
    tmp_path: Path, end: str, status: int, error: str
) -> None:
    done = _ramet(tmp_path, f"import sys\n{end}\n")
    assert (done.returncode, done.stderr) == (status, error)


def test_an_interrupt_is_no_traceback(tmp_path: Path) -> None:
    done = _ramet(tmp_path, "raise KeyboardInterrupt\n")
    assert (done.returncode, done.stderr) == (130, "ramet: interrupted\n")


def test_options_that_cannot_be_are_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("print('ran')")
    bad = [
        (["--page-size", "0"], "page_size=0"),
        (["--pool-tokens", "lots"], "pool_tokens='lots'"),
        (["--device", "tpu"], "device='tpu'"),
        (["--policy", "random"], "random"),
        (["--max-context", "x"], "max-context"),
    ]
    for options, text in bad:
        result = CliRunner().invoke(main, ["run", *options, str(file)])
        assert result.exit_code == 2
        assert text in result.output
        assert "ran" not in result.output.splitlines()
    assert CliRunner().invoke(main, ["run", str(tmp_path / "missing.py")]).exit_code == 2


def test_there_is_one_option_per_field_with_its_words() -> None:
    text = CliRunner().invoke(main, ["run", "--help"]).output
    for field in dataclasses.fields(RuntimeConfig):
        assert f"--{field.name.replace('_', '-')} " in text
    assert "Slots per page" in text
    assert "None" not in text.split("--device")[0].replace("None is the built-in model", "")


def test_models_and_version() -> None:
    models = CliRunner().invoke(main, ["models"])
    assert models.exit_code == 0
    lines = models.output.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["smollm2-135m", "tiny"]
    assert "hub id" in lines[2]
    version = CliRunner().invoke(main, ["--version"])
    assert version.exit_code == 0
    assert version.output.startswith("ramet, version ")


def test_options_that_a_programs_own_backend_leaves_idle_are_told(tmp_path: Path) -> None:
    code = (
        "import ramet.lang as rm\n"
        "rm.set_default_backend(rm.Runtime('tiny'))\n"
        "rm.function(lambda s: s.__iadd__('a' + rm.gen(max_tokens=1))).run()\n"
    )
    done = _ramet(tmp_path, code)
    assert done.returncode == 0
    assert "set a backend of its own" in done.stderr


def test_a_graphs_file_sees_no_arguments_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "import argparse\nimport ramet.lang as rm\n"
        "argparse.ArgumentParser().parse_args()\n"
        "@rm.function\ndef f(s):\n    s += 'a'\n"
    )
    assert CliRunner().invoke(main, ["graph", f"{file}:f"]).exit_code == 0
