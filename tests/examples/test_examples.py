"""The examples run, and leave what they promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.examples.commands import ROOT, run


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
