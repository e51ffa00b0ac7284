"""The direction of imports: tenferro → engines → lowering → tracer, and what each layer may import from outside."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("tracer", "lowering", "engines", "tenferro")  # from the bottom up
OUTSIDE = {"tracer": {"numpy"}, "lowering": {"numpy"}, "engines": {"numpy", "llvmlite"}, "tenferro": {"numpy"}}
LLVMLITE_FILE = "engines/cpu/toolchain.py"
TQDM_FILE = "tenferro/progress.py"
CUPY_FILE = "engines/cuda/cupy_device.py"
MPI_FILE = "tenferro/mpi.py"
HOOKS = {
    ("tracer/api/methods.py", "tenferro.numpy"): "the array API asks an array for its namespace, which lies at the top",
    ("tenferro/__init__.py", "unknown"): "tenferro.lax, .numpy and .runtime are loaded when they are first named",
}
"""(file, module) → why an import by name at run time is right there."""


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    in_function: bool


def module_name(file: Path, root: Path = ROOT) -> str:
    """``tracer/ops/layout.py`` → ``tenferro.tracer.ops.layout``."""
    parts = list(file.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if parts[0] == "tenferro" else ["tenferro", *parts])


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS[:3] else "tenferro"


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (n.name for n in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - level + 1]) if level else ""
            source = ".".join(filter(None, (base, module)))
            # Each name may itself be a module: `from tenferro import tracer`.
            yield from (f"{source}.{n.name}" for n in names)
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"), args=args
        ):
            for arg in args[:1]:
                # A module chosen at run time cannot be judged here, so it counts as unknown and fails.
                yield str(arg.value) if isinstance(arg, ast.Constant) else "unknown"


def imports(text: str, module: str, is_package: bool) -> list[Import]:
    package = module if is_package else module.rpartition(".")[0]
    found: list[Import] = []

    def visit(node: ast.AST, in_function: bool) -> None:
        found.extend(Import(name, node.lineno, in_function) for name in _imported(node, package))  # type: ignore[attr-defined]
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(text), False)
    return found


def faults(text: str, module: str, is_package: bool, path: str) -> list[str]:
    """What this file imports against the rules, as ``path:line: sentence``."""
    layer = layer_of(module)
    found = []
    for item in imports(text, module, is_package):
        if item.in_function and (path, item.module) in HOOKS:
            continue
        top = item.module.split(".")[0]
        where = f"{path}:{item.line}: {layer} imports {item.module}"
        if top == "tenferro":
            if LAYERS.index(layer_of(item.module)) > LAYERS.index(layer):
                found.append(f"{where}, which lies above it")
        elif top in ("tracer", "lowering", "engines"):
            found.append(f"{where}: a second copy of tenferro.{item.module}")
        elif top == "mpi4py":
            if path != MPI_FILE or not item.in_function:
                found.append(f"{where}; only a function of {MPI_FILE} may, at the first mesh of ranks")
        elif top == "tqdm":
            if path != TQDM_FILE or not item.in_function:
                found.append(f"{where}; only a function of {TQDM_FILE} may, when a bar is shown")
        elif top == "llvmlite":
            if path != LLVMLITE_FILE or not item.in_function:
                found.append(f"{where}; only a function of {LLVMLITE_FILE} may, so that it loads at the first compile")
        elif top == "cupy":
            if path != CUPY_FILE or not item.in_function:
                found.append(f"{where}; only a function of {CUPY_FILE} may, so that it loads when a GPU is asked for")
        elif top not in sys.stdlib_module_names and top not in OUTSIDE[layer]:
            found.append(f"{where}; from outside it may import {sorted(OUTSIDE[layer])} alone")
    return found


def source_files() -> list[Path]:
    return sorted(f for layer in LAYERS for f in (ROOT / layer).rglob("*.py"))


def test_every_hook_is_used():
    used = {
        (f.relative_to(ROOT).as_posix(), item.module)
        for f in source_files()
        for item in imports(f.read_text(encoding="utf-8"), module_name(f), f.name == "__init__.py")
    }
    assert set(HOOKS) <= used


def test_sources_are_found():
    assert {layer_of(module_name(f)) for f in source_files()} == set(LAYERS)


@pytest.mark.parametrize("file", source_files(), ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_go_down(file: Path):
    path = file.relative_to(ROOT).as_posix()
    assert faults(file.read_text(encoding="utf-8"), module_name(file), file.name == "__init__.py", path) == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules from which a walk along imports comes back to its start; empty where there is no such walk."""
    left = {module: set(imported) for module, imported in graph.items()}
    while left:
        ends = {m for m, imported in left.items() if not imported & left.keys()}
        if not ends:
            return sorted(left)
        left = {m: imported for m, imported in left.items() if m not in ends}
    return []


def without_type_checking(text: str) -> str:
    """The text without what only type checkers read."""
    body = [n for n in ast.parse(text).body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))]
    return ast.unparse(ast.Module(body, []))


def test_what_users_call_has_no_circle_of_imports():
    """Imports inside functions count: they delay a module, they hide no circle."""
    files = {module_name(f): f for f in (ROOT / "tenferro").rglob("*.py")}
    graph = {}
    for module, file in files.items():
        text = without_type_checking(file.read_text(encoding="utf-8"))
        found = {i.module for i in imports(text, module, file.name == "__init__.py")}
        # An imported name is a module of the folder, or stands in one.
        graph[module] = ({m for m in found if m in files} | {m.rpartition(".")[0] for m in found}) & files.keys()
        graph[module] -= {module, "tenferro"}
    assert circle(graph) == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["a", "b", "c", "d"]
    assert "x" not in without_type_checking("if TYPE_CHECKING:\n    import x\nimport y")


@pytest.mark.parametrize(
    ("path", "text", "needle"),
    [
        ("tracer/a.py", "from tenferro.lowering import plan", "lies above"),
        ("tracer/a.py", "import tenferro", "lies above"),
        ("tracer/a.py", "from tenferro import Array", "lies above"),
        ("tracer/ops/a.py", "from ...lowering import plan", "lies above"),
        ("tracer/a.py", "def f():\n    from tenferro.engines import engine", "lies above"),
        ("lowering/a.py", "if TYPE_CHECKING:\n    from tenferro.engines.engine import Engine", "lies above"),
        ("engines/a.py", "importlib.import_module('tenferro.runtime')", "lies above"),
        ("tracer/a.py", "importlib.import_module(name)", "unknown"),
        ("tracer/a.py", "import scipy.special", "from outside"),
        ("tenferro/a.py", "import tracer.dims", "second copy"),
        ("tenferro/mpi.py", "from mpi4py import MPI", "first mesh of ranks"),
        ("tenferro/progress.py", "from tqdm.auto import tqdm", "a bar is shown"),
        ("tenferro/control.py", "def f():\n    import tqdm", "a bar is shown"),
        ("engines/cpu/toolchain.py", "import llvmlite.binding", "first compile"),
        ("engines/cuda/cupy_device.py", "import cupy", "a GPU is asked for"),
        ("engines/cuda/engine.py", "def f():\n    import cupy", "a GPU is asked for"),
        ("engines/cpu/emit.py", "def f():\n    import llvmlite", "first compile"),
    ],
)
def test_a_wrong_import_is_found(path: str, text: str, needle: str):
    (fault,) = faults(text, module_name(ROOT / path), False, path)
    assert needle in fault


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tracer/a.py", "import math\nimport numpy as np\nfrom tenferro.tracer.dims import add"),
        ("tracer/ops/a.py", "from . import layout\nfrom ..dims import add"),
        ("lowering/a.py", "from tenferro.tracer.program import Value\nfrom tenferro import tracer"),
        ("engines/cpu/toolchain.py", "def f():\n    import llvmlite.binding"),
        ("tenferro/a.py", "from tenferro.engines import engine\nfrom tenferro.runtime import prepare"),
    ],
)
def test_a_right_import_passes(path: str, text: str):
    assert faults(text, module_name(ROOT / path), False, path) == []
