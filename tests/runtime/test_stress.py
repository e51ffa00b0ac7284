"""A few seconds of ``tools/stress_runtime.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_nothing_is_lost_left_or_stuck():
    done = subprocess.run(
        [sys.executable, "tools/stress_runtime.py", "--minutes", "0.08"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results" in done.stdout and "Injected" in done.stdout and "nothing went wrong" in done.stdout
