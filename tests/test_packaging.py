"""The package: its list of folders, what importing it loads, and the length of files and functions."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tenferro

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("tenferro", "tracer", "lowering", "engines")
FOLDERS = (*SOURCES, "tests", "benchmarks", "examples", "tools")
MAX_FILE, MAX_FUNCTION = 500, 60

LONG_FILES: dict[str, str] = {
    "tests/samples.py": "the samples of every row of the op table: data, in one place like the table",
}
"""path → why it may be longer than MAX_FILE lines."""

LONG_FUNCTIONS: dict[str, str] = {}
"""path::function → why it may be longer than MAX_FUNCTION lines."""


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def python_files() -> list[Path]:
    return sorted(f for folder in FOLDERS for f in (ROOT / folder).rglob("*.py"))


def test_packages_equal_the_folders():
    settings = project()["tool"]["setuptools"]
    found = set()
    for name, folder in settings["package-dir"].items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.parent.relative_to(ROOT / folder).parts
            found.add(".".join([name, *parts]))
    assert set(settings["packages"]) == found
    assert len(settings["packages"]) == len(found), "a package is listed twice"


@pytest.mark.parametrize("folder", SOURCES)
def test_every_source_folder_is_a_package(folder: str):
    missing = {f.parent for f in (ROOT / folder).rglob("*.py") if not (f.parent / "__init__.py").exists()}
    assert missing == set()


def test_dependencies_are_numpy_and_llvmlite():
    names = {d.split(">")[0].split("=")[0].strip() for d in project()["project"]["dependencies"]}
    assert names == {"numpy", "llvmlite"}


def test_version():
    assert tenferro.__version__ == metadata.version("tenferro") == project()["project"]["version"]


def test_no_second_copy_at_top_level():
    assert {"tracer", "lowering", "engines"} & set(sys.modules) == set()


def test_no_folder_hides_the_package():
    assert not (ROOT / "tests" / "tenferro").exists()


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT / "tests")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_numpy_alone():
    """llvmlite loads at the first compile; nothing else from outside loads at all."""
    code = (
        "import sys, numpy; before = set(sys.modules); import tenferro\n"
        "tops = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "print(sorted(t for t in tops - set(sys.stdlib_module_names) if not t.startswith('_')))"
    )
    # The finder of the editable install is loaded by the interpreter's start, before any import of ours.
    assert run_python(code).strip() == "['tenferro']"


def test_first_compile_loads_llvmlite():
    code = (
        "import sys, numpy as np, tenferro as tn\n"
        "f = tn.jit(lambda x: np.exp(x) + 1)\n"
        "assert 'llvmlite' not in sys.modules\n"
        "f(np.ones(8)); print('llvmlite' in sys.modules)"
    )
    assert run_python(code).strip() == "True"


def test_wheel_lists_typing_marker():
    assert (ROOT / "tenferro" / "py.typed").exists()
    assert project()["tool"]["setuptools"]["package-data"]["tenferro"] == ["py.typed"]


def function_lengths(file: Path) -> dict[str, int]:
    """Lines of every function, its decorators and docstring left out."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node) is not None and first.end_lineno is not None:
                length -= first.end_lineno - first.lineno + 1
            found[node.name] = max(length, found.get(node.name, 0))
    return found


def test_files_are_short():
    lengths = {f.relative_to(ROOT).as_posix(): len(f.read_text(encoding="utf-8").splitlines()) for f in python_files()}
    assert {p: n for p, n in lengths.items() if n > MAX_FILE and p not in LONG_FILES} == {}
    assert {p for p in LONG_FILES if lengths.get(p, 0) <= MAX_FILE} == set(), "no longer long: drop it from LONG_FILES"


def test_functions_are_short():
    lengths = {
        f"{f.relative_to(ROOT).as_posix()}::{name}": n
        for f in python_files()
        for name, n in function_lengths(f).items()
    }
    assert {p: n for p, n in lengths.items() if n > MAX_FUNCTION and p not in LONG_FUNCTIONS} == {}
    assert {p for p in LONG_FUNCTIONS if lengths.get(p, 0) <= MAX_FUNCTION} == set(), "no longer long"


def described_files() -> list[Path]:
    """All but tests, whose names say what they are about, and empty package markers."""
    return [f for f in python_files() if f.stat().st_size and not f.is_relative_to(ROOT / "tests")]


@pytest.mark.parametrize("file", described_files(), ids=lambda f: str(f.relative_to(ROOT)))
def test_file_opens_with_its_purpose(file: Path):
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))), "the first lines say what goes in and out"


def public_names() -> list[str]:
    """What ``dir(tenferro)`` shows in a process that has loaded nothing else of it, and after it has run a program."""
    show = "print(*(n for n in dir(tn) if n[:2] != '__'))\n"
    code = f"import numpy as np, tenferro as tn\n{show}tn.jit(lambda x: x + 1)(np.ones(3)); tn.psum, tn.runtime\n{show}"
    before, after = run_python(code).splitlines()
    assert before == after
    return before.split()


def test_dir_shows_the_public_names_and_no_others():
    names = public_names()
    assert {"jit", "Array", "Mesh", "psum", "list_engines", "cuda_engine", "ConfigError", "numpy", "runtime"} <= set(
        names
    )
    assert all(getattr(tenferro, name) is not None for name in names)
    modules = {n for n in names if isinstance(getattr(tenferro, n), ModuleType)}
    api = {
        "debug",
        "flatten_util",
        "lax",
        "linalg",
        "nn",
        "numpy",
        "random",
        "runtime",
        "special",
        "test_util",
        "tree",
        "tree_util",
    }
    assert modules <= api, "modules that are no API"
    assert [n for n in names if n.startswith("_")] == []


def test_a_star_import_gives_them_and_leaves_numpy_alone():
    code = "import numpy; from tenferro import *; print(numpy.__name__, jit.__name__, psum.__name__, tree.__name__)"
    assert run_python(code).split() == ["numpy", "jit", "psum", "tenferro.tree"]


def test_a_name_that_is_none_is_refused():
    with pytest.raises(AttributeError, match="module 'tenferro' has no attribute 'jits'"):
        tenferro.jits  # noqa: B018


def test_every_error_and_warning_is_public() -> None:
    from tenferro.tracer import errors

    made = [x for x in vars(errors).values() if isinstance(x, type) and x.__module__ == errors.__name__]
    assert len(made) > 20
    assert [x.__name__ for x in made if getattr(tenferro, x.__name__, None) is not x] == []
