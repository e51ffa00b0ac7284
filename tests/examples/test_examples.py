"""The examples and the benchmark command run, and leave what they promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments: str, seconds: int = 300) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_main_job():
    printed = run("-m", "tenferro", "--all")
    assert "NumPy" in printed
    for sign in ("  s0, s1, … are", "  o marks", "  peak is"):
        assert sum(line.startswith(sign) for line in printed.splitlines()) == 1, sign


def test_quickstart():
    printed = run("examples/quickstart.py")
    assert "softmax of (0, 5): ndarray float64 (0, 5)" in printed
    assert "compiles=1" in printed
    assert "after 100 steps: total 1.000000" in printed
    assert "ShapeError" in printed


def test_sharded():
    printed = run("examples/sharded.py")
    assert "1797 digits of 64 pixels, 1798 rows with padding, on Mesh(rows: 2; cpu:0, cpu:1)" in printed
    assert "after 100 steps: loss 0.4104, 94.0 % right" in printed
    assert "all_reduce over 2 engines" in printed


def test_extension():
    printed = run("examples/extension.py")
    assert printed.count("against NumPy: True") == 3, printed
    assert "largest spike: 6.8291\n  range: 7.0317\n" in printed
    assert "width is 4; an odd number is needed" in printed
    assert "transfer   s2 cpu:1/host → cpu:0/host: 8*d0_0*d0_1 bytes, read by add" in printed


def is_picture(path: Path) -> bool:
    """Whether something is drawn on it."""
    with Image.open(path) as image:
        return float(np.asarray(image.convert("L")).std()) > 10


def test_digits(tmp_path: Path):
    printed = run("examples/digits.py", str(tmp_path))
    assert "1320 steps" in printed
    assert "test accuracy 99.17%" in printed
    assert {f.name for f in tmp_path.iterdir() if is_picture(f)} == {"loss.png", "wrong.png"}


def test_convnet(tmp_path: Path):
    printed = run("examples/convnet.py", str(tmp_path))
    assert "test accuracy 99.44%" in printed
    assert {f.name for f in tmp_path.iterdir() if is_picture(f)} == {"accuracy.png", "filters.png"}


def test_logistic():
    printed = run("examples/logistic.py")
    assert "10 steps of Newton's method" in printed
    assert "98.77% of the rows" in printed


def test_lorenz(tmp_path: Path):
    printed = run("examples/lorenz.py", str(tmp_path))
    (rho,) = (line.split() for line in printed.splitlines() if line.startswith("  by rho"))
    assert rho[2:] == ["+0.995266382", "+0.995266382", "+0.995266"]
    assert {f.name for f in tmp_path.iterdir() if is_picture(f)} == {"lorenz.png"}


def test_gp(tmp_path: Path):
    printed = run("examples/gp.py", str(tmp_path))
    assert "242 new rows: error 0.68" in printed
    assert {f.name for f in tmp_path.iterdir() if is_picture(f)} == {"gp.png"}


NOTEBOOK = """
import sys
from pathlib import Path
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(Path(sys.argv[1]).parent)}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text") or sorted(output.get("data", ())))
"""


def printed_in(cells: list[dict[str, Any]]) -> list[str]:
    """Lines that a notebook's cells printed when it was kept."""
    streams = [o for cell in cells for o in cell.get("outputs", ()) if o["output_type"] == "stream"]
    return [line for stream in streams for line in "".join(stream["text"]).splitlines() if line]


def test_nbody():
    """The notebook runs, and prints what it shows."""
    notebook = ROOT / "examples" / "nbody.ipynb"
    printed = run("-c", NOTEBOOK, str(notebook)).splitlines()
    kept = [line for line in printed_in(json.loads(notebook.read_text())["cells"]) if "misses" not in line]
    assert len(kept) == 5, kept
    assert [line for line in kept if line not in printed and "CacheInfo" not in line] == []
    assert printed.count("['image/png', 'text/plain']") == 2


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("photos")
    return folder, run("examples/photo.py", str(folder), "--shrink", "4", "--sides", "16,33,64", "--repeats", "1")


def test_photo_writes_its_files(photos: tuple[Path, str]):
    folder, _ = photos
    steps = ("original", "tone", "sharp", "vignette", "developed")
    names = {f"{photo}-{step}.png" for photo in ("china", "flower") for step in steps} | {"time.png"}
    assert {f.name for f in folder.iterdir()} == names


def test_photo_compiles_once_for_all_sizes(photos: tuple[Path, str]):
    assert "compiles=1" in photos[1]


def read(folder: Path, name: str) -> np.ndarray:
    with Image.open(folder / f"{name}.png") as image:
        return np.asarray(image).astype(float)


@pytest.mark.parametrize("photo", ["china", "flower"])
def test_photo_pictures_are_what_they_claim(photos: tuple[Path, str], photo: str):
    folder, _ = photos
    original = read(folder, f"{photo}-original")
    sharp, dark = read(folder, f"{photo}-sharp"), read(folder, f"{photo}-vignette")
    assert sharp.shape == dark.shape == original.shape
    assert np.abs(np.diff(sharp, axis=0)).mean() > 1.2 * np.abs(np.diff(original, axis=0)).mean()
    corner = (slice(0, 8), slice(0, 8))
    assert dark[corner].mean() < 0.6 * original[corner].mean()
    middle = tuple(slice(n // 2 - 4, n // 2 + 4) for n in original.shape[:2])
    assert dark[middle].mean() > 0.97 * original[middle].mean()
    tone = read(folder, f"{photo}-tone")
    assert tone.mean() > original.mean()
    assert tone.std() > 20


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
    results = tmp_path / "results.json"
    run("-m", "benchmarks", "--peers", "tenferro", "--dtype", "float32", "--cases", case, "--json", str(results))
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
