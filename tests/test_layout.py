"""The house rules, as tests: layout, direction of imports, sizes, and what may not appear."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("lang", "runtime", "kernels")
ALLOWED = {"lang": {"lang", "runtime"}, "runtime": {"runtime", "kernels"}, "kernels": {"kernels"}}
PURE = (
    "lang",
    "runtime/cache",
    "runtime/schedule",
    "runtime/simulation",
    "runtime/client",
    "runtime/source",
    "runtime/grammar",
)
PURE_FILES = ("errors", "request", "config", "tokenizer", "builtin_model", "counters")
SOURCES = sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))
LONG = ("bench", "precision")
"""Programs that measure, and may be longer than those that are read as examples."""
EVERYTHING = [*SOURCES, *sorted((ROOT / "programs").rglob("*.py"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, whether it is imported at load time) for each import in a file."""
    tree = ast.parse(path.read_text())
    lazy = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef))
        or (isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test))
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in lazy
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) not in lazy
            if node.module in ("ramet", "ramet.runtime", "ramet.lang", "ramet.kernels"):
                for alias in node.names:
                    yield f"{node.module}.{alias.name}", id(node) not in lazy


def test_the_top_level_is_what_the_map_says():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not tracked:
        pytest.skip("not a git checkout")
    allowed = {
        *ROOMS,
        "programs",
        "tests",
        ".ci",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        ".gitignore",
    }
    assert {path.split("/")[0] for path in tracked} <= allowed


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_rooms_know_only_the_rooms_below(path: Path):
    room = name(path).split("/")[0]
    for module, _ in imports(path):
        if module.startswith("ramet."):
            assert module.split(".")[1] in ALLOWED[room], f"{name(path)} imports {module}"
        assert module.split(".")[0] not in ROOMS, f"{name(path)} imports the bare room {module}"


def test_policy_is_torch_free():
    files = [p for p in SOURCES if name(p).startswith(PURE)]
    files += [ROOT / "runtime" / f"{stem}.py" for stem in PURE_FILES]
    assert files
    for path in files:
        for module, _ in imports(path):
            assert module.split(".")[0] != "torch", f"{name(path)} imports torch"


def test_importing_the_language_loads_no_torch():
    code = (
        "import sys, ramet.lang; "
        "print(*(m for m in ('torch', 'transformers', 'numba', 'numpy') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


@pytest.mark.parametrize("path", EVERYTHING, ids=name)
def test_sizes(path: Path):
    text = path.read_text()
    limit = 89 if path.parent.name == "programs" and path.stem not in LONG else 400
    assert len(text.splitlines()) <= limit, f"{name(path)} has {len(text.splitlines())} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= 60, f"{name(path)}: {node.name} has {lines} lines"
        if isinstance(node, ast.ClassDef) and node.name != "ProgramState":
            public = [
                f
                for f in node.body
                if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))
                and not f.name.startswith("_")
            ]
            assert len(public) <= 15, f"{name(path)}: {node.name} has {len(public)} public methods"


@pytest.mark.parametrize("path", EVERYTHING, ids=name)
def test_no_forbidden_thing(path: Path):
    tree = ast.parse(path.read_text())
    for module, _ in imports(path):
        assert module.split(".")[0] not in ("pickle", "cloudpickle", "dill", "marshal", "shelve")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            assert name(path) == "runtime/config.py", f"{name(path)} reads the environment"
        assert not isinstance(node, ast.Global), f"{name(path)} has a `global` statement"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec"), f"{name(path)} calls {node.func.id}"
    assert path.stem not in sys.stdlib_module_names, f"{name(path)} hides a standard module"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_public_nouns_have_docstrings(path: Path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{name(path)} has no docstring"
    for node in tree.body:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        if isinstance(node, kinds) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name(path)}: {node.name} has no docstring"


def test_packages_are_listed():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {"ramet." + ".".join(p.relative_to(ROOT).parent.parts) for p in SOURCES}
    assert set(setup["packages"]) == found
    assert set(setup["package-dir"]) == {f"ramet.{room}" for room in ROOMS}


def test_namespace_packages_stay_namespaces():
    assert not (ROOT / "kernels" / "__init__.py").exists(), (
        "with it, transformers takes this folder for the package of the same name"
    )
    for room in ROOMS:
        assert (ROOT / room / "py.typed").exists()


def test_readme_begins_with_the_two_commands_and_maps_every_room():
    text = (ROOT / "README.md").read_text()
    blocks = [part.split("```")[0].strip() for part in text.split("```bash")[1:]]
    assert len(blocks) >= 2
    assert all("\n" not in block for block in blocks[:2])
    assert "pip install" in blocks[0]
    assert "ramet run" in blocks[0]
    assert "pytest" in blocks[1]
    for room in (*ROOMS, "programs", "tests"):
        assert f"{room}/" in text
    for path in SOURCES:
        top = path.relative_to(ROOT).parts
        noun = top[1] if len(top) > 2 else path.stem
        assert noun in text or noun == "__init__", f"README's map lacks {name(path)}"


def test_every_test_file_asserts():
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        checks = "assert" in text or "raises" in text or "from oracle import" in text
        assert checks, f"{name(path)} asserts nothing"
