"""NVRTC through ctypes: CUDA C goes in, PTX comes out. Needs the library alone, no GPU and no driver."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tenferro.engines.cuda.prelude import OPTIONS

CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0), (12, 0))


class NvrtcError(Exception):
    """A text that NVRTC refuses, with its log."""


@cache
def library() -> ctypes.CDLL | None:
    """The NVRTC of the ``nvidia-cuda-nvrtc`` wheels, or one that the system finds; None without any."""
    for file in [*_wheel_files(), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]:
        try:
            return ctypes.CDLL(str(file))
        except OSError:
            continue
    return None


def _wheel_files() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec is not None and spec.submodule_search_locations else []
    return [f for root in roots for f in sorted(Path(root).rglob("libnvrtc.so.*")) if "builtins" not in f.name]


def missing() -> str:
    """Why nothing can be compiled here; "" where it can."""
    if library() is None:
        return "no NVRTC on this machine (pip install nvidia-cuda-nvrtc): kernel texts are not compiled for GPUs"
    return ""


def _loaded() -> ctypes.CDLL:
    found = library()
    if found is None:
        raise NvrtcError(missing())
    return found


def version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _loaded().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@cache
def supported() -> frozenset[tuple[int, int]]:
    """Compute capabilities that this NVRTC compiles for."""
    count = ctypes.c_int()
    _loaded().nvrtcGetNumSupportedArchs(ctypes.byref(count))
    archs = (ctypes.c_int * count.value)()
    _loaded().nvrtcGetSupportedArchs(archs)
    return frozenset((a // 10, a % 10) for a in archs)


def compile_text(text: str, capability: tuple[int, int], options: Sequence[str] = OPTIONS) -> str:
    """The PTX of a module. Raises NvrtcError with the log."""
    lib = _loaded()
    program = ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"module.cu", 0, None, None)
    try:
        given = [o.encode() for o in (*options, f"--gpu-architecture=compute_{capability[0]}{capability[1]}")]
        status = lib.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        if status:
            raise NvrtcError(f"status {status}\n" + _text(lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog, program))
        return _text(lib.nvrtcGetPTXSize, lib.nvrtcGetPTX, program)
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of: object, get: object, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))  # type: ignore[operator]
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)  # type: ignore[operator]
    return buffer.value.decode()
