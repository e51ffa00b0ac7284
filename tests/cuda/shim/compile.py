"""Kernel texts on the CPU: texts go in, callables come out, by g++ and ``cuda_shim.h``.

Many kernels are compiled as one file; libraries are kept by the hash of their text in a folder of the machine's
temporary ones, so that a second run of the tests compiles nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from tenferro.engines.cuda.prelude import KernelText, module_text

FOLDER = Path(__file__).parent
FLAGS = ("-std=c++17", "-O0", "-ffp-contract=off", "-mfma", "-mf16c", "-fno-strict-aliasing", "-fwrapv", "-w")
PER_FILE = 100
BARRIERS = ("__syncthreads", "__syncwarp", "__shfl")


def missing() -> str:
    """Why the shim cannot run here; "" where it can."""
    if shutil.which("g++") is None:
        return "no g++ on this machine: kernel texts are not run on the CPU"
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        return f"the shim is written for x86-64 under Linux; this is {platform.machine()} under {sys.platform}"
    features = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    if not {"fma", "f16c"} <= features:
        return "this processor has no fma or f16c instructions, which the shim is compiled for"
    return ""


def _folder() -> Path:
    found = Path(tempfile.gettempdir()) / f"tenferro-cuda-shim-{os.getuid()}"
    found.mkdir(mode=0o700, exist_ok=True)
    if found.stat().st_uid != os.getuid():
        raise PermissionError(f"{found} belongs to user {found.stat().st_uid}; needed: a folder of this user")
    return found


def source(kernels: Sequence[KernelText]) -> str:
    """The C++ of many kernels, with an entry ``run_NAME(words, grid, x, y)`` for every function of each."""
    lines = ['#include "cuda_shim.h"', module_text(kernels)]
    for kernel in kernels:
        barriers = str(any(b in kernel.body for b in BARRIERS)).lower()
        for name in kernel.entries.values():
            argument = f"*(const tn_words<{kernel.words}>*)w" if kernel.by_value else "w"
            lines.append(f"static void call_{name}(const long long* w) {{ {name}({argument}); }}")
            lines.append(
                f'extern "C" void run_{name}(const long long* w, unsigned grid, unsigned x, unsigned y) '
                f"{{ tn_run(call_{name}, w, grid, x, y, {barriers}); }}"
            )
    return "\n".join(lines) + "\n"


@cache
def _header() -> str:
    return (FOLDER / "cuda_shim.h").read_text(encoding="utf-8")


@cache
def _runtime() -> ctypes.CDLL:
    """The fibers, whose names the libraries of kernels find."""
    return ctypes.CDLL(str(_built((FOLDER / "cuda_shim.cpp").read_text(encoding="utf-8"))), mode=ctypes.RTLD_GLOBAL)


def _built(text: str) -> Path:
    digest = hashlib.sha256("\n".join([*FLAGS, _header(), text]).encode()).hexdigest()[:24]
    folder = _folder()
    library = folder / f"{digest}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            file, made = Path(work) / f"{digest}.cpp", Path(work) / "made.so"
            file.write_text(text, encoding="utf-8")
            command = ["g++", *FLAGS, "-shared", "-fPIC", f"-I{FOLDER}", str(file), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"g++ refuses the text of {file}:\n{done.stderr[:4000]}")
            made.replace(library)
    return library


class Shim:
    """Compiled kernels by the names of their functions."""

    def __init__(self) -> None:
        self._libraries: dict[str, ctypes.CDLL] = {}

    def add(self, kernels: Iterable[KernelText]) -> None:
        """Compile what is not yet known, in files of many."""
        new = list({k.body: k for k in kernels if not self._has(k)}.values())
        groups = [new[i : i + PER_FILE] for i in range(0, len(new), PER_FILE)]
        _runtime()
        with ThreadPoolExecutor(2) as pool:
            for group, file in zip(groups, pool.map(_built, map(source, groups)), strict=True):
                library = ctypes.CDLL(str(file))
                self._libraries.update((name, library) for k in group for name in k.entries.values())

    def _has(self, kernel: KernelText) -> bool:
        return all(name in self._libraries for name in kernel.entries.values())

    def run(self, kernel: KernelText, entry: str, words: Sequence[int], grid: int, block: tuple[int, int]) -> None:
        """One launch, all blocks in turn."""
        if not self._has(kernel):
            self.add([kernel])
        name = kernel.entries[entry]
        function = self._libraries[name][f"run_{name}"]
        function.restype = None
        function.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint]
        data = np.array(words, np.int64)
        function(data.ctypes.data, grid, *block)
