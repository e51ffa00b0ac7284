"""The benchmark command runs, and leaves what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.commands import ROOT, run


def test_benchmarks_run(tmp_path: Path):
    """Every array case at a small size, and the report made from its JSON; tenferro itself always takes part."""
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    array_cases = "axpy,gelu,log_return,where_chain,complex_mul,call,expsum,softmax,softmax_long,softmax_axis0,"
    array_cases += "layer_norm,var_all,sum_axis0,mask_sum,heat,x_plus_xT,mlp_1,mlp_256,batched_3x3,batched_4x4,max_all,"
    array_cases += "argmax_all,embedding"
    common = ["-m", "benchmarks", "--peers", "numpy", "--size-scale", "0.0005", "--seconds", "0.01"]
    printed = run(*common, "--cases", array_cases, "--json", str(results), "--markdown", str(page))
    found = json.loads(results.read_text())["results"]
    assert {(r["case"], r["peer"], r["status"]) for r in found if r["peer"] == "tenferro"} == {
        (name, "tenferro", "ok") for name in array_cases.split(",")
    }
    assert "wrong" not in printed
    again = tmp_path / "again.md"
    run("-m", "benchmarks", "--from-json", str(results), "--markdown", str(again))
    assert again.read_text().splitlines()[4:] == page.read_text().splitlines()[4:]


@pytest.mark.parametrize("case", ["compile_30", "many_sizes", "restart_100", "import"])
def test_process_benchmarks_run(tmp_path: Path, case: str):
    """One round of those whose processes compile, all of the import."""
    results = tmp_path / "results.json"
    rounds = ["--rounds", "1"] if case != "import" else []
    command = ["-m", "benchmarks", "--peers", "tenferro", "--dtype", "float32", *rounds]
    run(*command, "--cases", case, "--json", str(results))
    (result,) = json.loads(results.read_text())["results"]
    assert result["status"] == "ok", result
    if case != "import":
        assert result["compiles"] == (case != "restart_100")


def test_an_unknown_case_is_named():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--cases", "axpi"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "axpi" in done.stderr


LIARS = """
import numpy as np
from benchmarks.cases import CASES
from benchmarks.gates import gate_rows
from benchmarks.measure import floor_call, run_case
from benchmarks.peers.numpy_peer import NumpyPeer
from benchmarks.report import Report, best_peer

class Off(NumpyPeer):
    name = "off"
    def forms(self, case, inputs):
        return {"one percent": lambda: case.function(*inputs) * np.float32(1.01)}

class Wide(NumpyPeer):
    name = "wide"
    def forms(self, case, inputs):
        return {"float64": lambda: case.function(*inputs).astype(np.float64)}

class Absent(NumpyPeer):
    name = "absent"
    def forms(self, case, inputs):
        raise RuntimeError("no toolchain")

peers = [p(1) for p in (NumpyPeer, Off, Wide, Absent)]
results = run_case(CASES["axpy"], np.dtype("float32"), peers, 1e-4, 0.01, lambda moved: floor_call(moved, 1))
print({r.peer: (r.status, r.seconds is not None) for r in results})
print(best_peer(results, CASES["axpy"]).peer)
print([row[-2:] for row in gate_rows(Report({}, {}, {}, results), CASES)[1:]])
"""


def test_benchmarks_time_no_wrong_result():
    """A wrong value or dtype has no time and is no rival; without tenferro's time no gate is met."""
    statuses, best, gates = run("-c", LIARS).splitlines()
    assert statuses == str(
        {
            "copy": ("ok", True),
            "numpy": ("ok", True),
            "off": ("wrong", False),
            "wide": ("wrong", False),
            "absent": ("RuntimeError: no toolchain", False),
        }
    )
    assert best == "numpy"
    assert gates == str([["not measured", "no"], ["not measured", "no"]])
