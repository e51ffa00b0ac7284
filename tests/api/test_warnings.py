"""NumPy's warnings at a seam, and in work that a trace does at once: the user's line, by the user's filters."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tests.runtime.engines import several

ONE = np.full((2, 1), np.nan)


def traced(x):
    y = x * 2
    return np.nanmedian(y) + 1


def at_a_seam():
    tn.jit(traced)(ONE)


def on_an_engine_of_its_own():
    @tn.jit
    def f(x):
        with tn.on("cpu:1"):
            y = np.nanmedian(x)  # line
        return y + 1

    f(ONE)


def by_the_reference_engine():
    tn.jit(lambda x: np.nanmedian(x), engine="reference:0")(ONE)  # line


def eager():
    np.nanmedian(tn.asarray(ONE))  # line


def by_the_namespace():
    tnp.nanmedian(ONE)  # line


def of_captured_contents():
    one = np.full((2, 1), np.nan)

    @tn.jit
    def f(x):
        return x if np.isnan(np.nanmedian(one)) else -x  # line

    f(ONE)


def of_what_the_trace_knows():
    @tn.jit
    def f(x):
        z = np.zeros(3)
        return x + np.divide(1, z)  # line

    f(np.ones(3))


def of_a_write_into_it():
    @tn.jit
    def f(x):
        z = np.zeros(3, np.float32)
        z[0] = 1e300  # line
        return x + z

    f(np.ones(3))


def of_an_update_of_it():
    @tn.jit
    def f(x):
        z = np.zeros(3)
        z /= 0  # line
        return x + z

    f(np.ones(3))


def of_a_conversion():
    tn.asarray(np.array([1j]), dtype=np.float32)  # line


def of_an_array_as_another_dtype():
    np.array(tn.asarray(np.array([1j])), dtype=np.float32)  # line


WAYS: tuple[Callable[[], Any], ...] = (
    at_a_seam, on_an_engine_of_its_own, by_the_reference_engine, eager, by_the_namespace, of_captured_contents,
    of_what_the_trace_knows, of_a_write_into_it, of_an_update_of_it, of_a_conversion, of_an_array_as_another_dtype,
)  # fmt: skip


def line_of(way: Callable[[], Any]) -> int:
    """The marked line, or that of ``traced``."""
    lines, first = inspect.getsourcelines(traced if way is at_a_seam else way)
    return first + next(k for k, text in enumerate(lines) if "# line" in text or "np.nanmedian(y)" in text)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_warnings_have_the_users_line(way):
    with several(2), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way()
    assert {(w.filename, w.lineno) for w in caught} == {(__file__, line_of(way))}
    assert len(caught) == len({str(w.message) for w in caught}), "each once"


def test_filters_for_the_users_module_hold():
    f = tn.jit(traced)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=re.escape(__name__))
        f(ONE)
    assert caught == []
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=re.escape(__name__))
        with pytest.raises(RuntimeWarning, match="All-NaN slice"):
            f(ONE)


def test_a_script_shows_a_warning_once_with_its_source(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, tenferro as tn\n"
        "@tn.jit\n"
        "def f(x):\n"
        "    return np.nanmedian(x)\n"
        "for _ in range(3):\n"
        "    f(np.full(2, np.nan))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"{script}:4: RuntimeWarning: All-NaN slice encountered",
        "  return np.nanmedian(x)",
    ]


def test_writes_into_arrays_do_not_warn_of_rounding():
    a = tn.asarray(np.zeros(2, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a[0] = 1e300
    assert np.asarray(a).tolist() == [np.inf, 0.0]
