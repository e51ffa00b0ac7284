"""Meshes across processes: ranks started by mpiexec, each compared with a mesh of engines in one process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tenferro as tn

HERE = Path(__file__).resolve().parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")
MISSING = [
    text
    for text, found in (
        ("mpi4py is not installed", importlib.util.find_spec("mpi4py") is not None),
        (f"there is no {MPIEXEC}", MPIEXEC.exists()),
    )
    if not found
]
needs_mpi = pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING) + "; python -m pip install mpi4py mpich")


def started(count: int, *script: str) -> subprocess.CompletedProcess[str]:
    command = [str(MPIEXEC), "-n", str(count), sys.executable, "-m", "mpi4py", *script]
    environment = {**os.environ, "TENFERRO_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@needs_mpi
@pytest.mark.parametrize("count", [2, 4])
def test_ranks_have_the_bits_of_engines(count: int) -> None:
    done = started(count, str(HERE / "ranks.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {k} of {count}: equal" in done.stdout for k in range(count)), done.stdout


@needs_mpi
def test_an_error_in_one_rank_ends_all(tmp_path: Path) -> None:
    """``python -m mpi4py`` aborts the others, which would wait for ever."""
    script = tmp_path / "fails.py"
    script.write_text(
        "import numpy as np, tenferro as tn\n"
        "mesh = tn.mpi_mesh('i')\n"
        "f = tn.shard_map(lambda v: tn.psum(v, 'i'), mesh, tn.P('i'), tn.P())\n"
        "if mesh.grid.positions == (1,):\n"
        "    raise RuntimeError('this rank fails')\n"
        "f(np.ones(2))\n"
    )
    done = started(2, str(script))
    assert done.returncode != 0 and "this rank fails" in done.stderr


def test_without_mpi4py_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"python -m pip install mpi4py mpich.*test_mpi.py"):
        tn.mpi_mesh("i")
