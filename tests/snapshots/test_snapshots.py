"""Every stage of the functions of ``tests/bits`` as text, beside this file: a change in the pipeline shows as a diff.

``pytest --update-snapshots`` rewrites the files. User lines are left out, since they move with the functions' file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenferro as tn
from tests.bits.functions import FUNCTIONS, Inputs

FOLDER = Path(__file__).parent
STAGES = ("program", "exec", "regions")


def stages(function: Callable[..., Any]) -> str:
    lowered = tn.jit(function).lower(*Inputs((7, 12), "float32").arrays())
    text = "\n\n".join(f"== {stage}\n{lowered.as_text(stage)}" for stage in STAGES)
    return re.sub(r"\s+# \S*\.py:\d+", "", text) + "\n"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_stages(function: Callable[..., Any], request: pytest.FixtureRequest) -> None:
    file, found = FOLDER / f"{function.__name__}.txt", stages(function)
    if request.config.getoption("--update-snapshots"):
        file.write_text(found)
    assert file.exists(), f"{file.name} is missing; pytest --update-snapshots writes it"
    assert found == file.read_text(), f"{file.name} is out of date; if it should be, pytest --update-snapshots"


def test_there_are_fifteen_functions_and_no_stray_file() -> None:
    assert len(FUNCTIONS) >= 15
    assert {f.stem for f in FOLDER.glob("*.txt")} == {f.__name__ for f in FUNCTIONS}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_stages_do_not_depend_on_history(function: Callable[..., Any]) -> None:
    """A second, independent trace of the same function gives the same text."""
    assert stages(function) == stages(function)


DIGESTS = FOLDER / "llvm.digests"


def llvm_digest(function: Callable[..., Any]) -> str:
    """Kernels, lines and a digest of the LLVM text, which is the same on every machine: LLVM fits it to the target."""
    tn.default_runtime().clear_caches()  # else the kernels of other layouts that ran before are listed too
    lowered = tn.jit(function).lower(*Inputs((7, 12), "float32").arrays())
    # Names of shared elementary functions end in a digest of the machine.
    text = re.sub(r"(@\w[\w.]*\.x\d+)\.[0-9a-f]{16}", r"\1", lowered.as_text("llvm"))
    kernels = sum(line.startswith("; r") for line in text.splitlines())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{function.__name__}: {kernels} kernels, {text.count(chr(10))} lines, {digest}"


def test_llvm(request: pytest.FixtureRequest) -> None:
    """The texts themselves are long; ``f.lower(*args).as_text("llvm")`` shows them."""
    found = "\n".join(llvm_digest(f) for f in FUNCTIONS) + "\n"
    if request.config.getoption("--update-snapshots"):
        DIGESTS.write_text(found)
    assert found == DIGESTS.read_text(), "kernels have changed; if they should have, pytest --update-snapshots"
