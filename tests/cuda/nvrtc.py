"""NVRTC through ctypes: CUDA C goes in, PTX comes out. Needs the library alone, no GPU and no driver."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Sequence
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
            if isinstance(file, Path):  # some wheels do not look beside themselves
                for part in file.parent.glob("libnvrtc-builtins.so.*"):
                    ctypes.CDLL(str(part))
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


def machine_code(text: str, capability: tuple[int, int]) -> bytes:
    """The machine code of a module for one device. Raises NvrtcError with the log."""
    arch = f"--gpu-architecture=sm_{capability[0]}{capability[1]}"
    return _compiled(text, [*OPTIONS, arch], "CUBIN")


def compile_text(text: str, capability: tuple[int, int], options: Sequence[str] = OPTIONS) -> str:
    """The PTX of a module. Raises NvrtcError with the log."""
    arch = f"--gpu-architecture=compute_{capability[0]}{capability[1]}"
    return _compiled(text, [*options, arch], "PTX").rstrip(b"\0").decode()


def _compiled(text: str, options: Sequence[str], kind: str) -> bytes:
    lib = _loaded()
    program = ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"module.cu", 0, None, None)
    try:
        given = [o.encode() for o in options]
        status = lib.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        if status:
            log = _bytes(lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
            raise NvrtcError(f"status {status}\n{log}")
        return _bytes(lib[f"nvrtcGet{kind}Size"], lib[f"nvrtcGet{kind}"], program)
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(size_of: Callable[..., int], get: Callable[..., int], program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw[: size.value]
