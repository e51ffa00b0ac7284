"""What only a process of its own shows: imports, settings, forks, the main job."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ | environment
    )


def test_import_loads_no_compiler():
    code = (
        "import sys, tenferro\n"
        "f = tenferro.jit(lambda x: x + 1)\n"
        "heavy = {'llvmlite', 'tenferro.lowering', 'tenferro.tracer.api.registry'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "import numpy as np\n"
        "print(f(np.ones(2)).tolist())"
    )
    result = run(code)
    assert result.stdout.split("\n")[:2] == ["[]", "[2.0, 2.0]"], result.stderr


def test_show_prints_stages():
    code = "import numpy as np, tenferro as tn; tn.jit(lambda x: np.exp(x) + 1)(np.ones(2))"
    result = run(code, TENFERRO_SHOW="program,exec,regions,kernel,llvm,asm", TENFERRO_ENGINE="cpu")
    for stage in ("program", "exec", "regions", "kernel", "llvm", "asm"):
        assert f"-- <lambda>: {stage}" in result.stderr or f": {stage}\n" in result.stderr
    assert "define" in result.stderr and "exp" in result.stderr and result.stdout == ""


def test_reference_engine_by_setting():
    code = (
        "import numpy as np, tenferro as tn\n"
        "f = tn.jit(lambda x: (x * 2).sum())\n"
        "print(tn.list_engines(), f(np.ones(3)), f.cache_info().kernels)"
    )
    assert run(code, TENFERRO_ENGINE="reference").stdout == "['reference:0'] 6.0 0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_during_a_trace():
    code = (
        "import os, sys, threading, time, warnings\n"
        "import numpy as np, tenferro as tn\n"
        "warnings.simplefilter('ignore')\n"
        "slow = threading.Event()\n"
        "@tn.jit\n"
        "def f(x):\n"
        "    if threading.current_thread() is not threading.main_thread():\n"
        "        slow.set(); time.sleep(1)\n"
        "    return np.exp(x) + 1\n"
        "x = np.ones(4)\n"
        "t = threading.Thread(target=f, args=(x,)); t.start(); slow.wait()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print(round(float(f(x)[0]), 3), flush=True); os._exit(0)\n"
        "_, status = os.waitpid(pid, 0); t.join(); sys.exit(status)\n"
    )
    result = run(code)
    assert (result.returncode, result.stdout) == (0, "3.718\n"), result.stderr


def test_main_job():
    result = subprocess.run([sys.executable, "-m", "tenferro"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    for part in ("== program", "== regions", "kernels", "good", "NumPy"):
        assert part in result.stdout
    assert len(result.stdout.splitlines()) <= 40


def test_results_in_cycles_outlive_modules():
    """JAX keeps the function and with it the globals: results among them are freed in the last collection of all."""
    pytest.importorskip("jax")
    code = (
        "import numpy as np, tenferro as tn, jax\n"
        "x = np.ones((300, 300), np.float32)\n"
        "def p(x): return (x * .01 + 1).prod(axis=1).sum()\n"
        "f, h = tn.jit(tn.grad(p)), jax.jit(jax.grad(p))\n"
        "r = f(x)\n"
        "h(x).block_until_ready()\n"
    )
    result = run(code, JAX_PLATFORMS="cpu")
    assert result.returncode == 0, result.stderr
