"""The process's native module: compiled once from ``native_*.py`` through the disk cache, then called like any builtin.

Out: ``enter``, ``enter_recorded`` and ``empty_array`` (builtins in CPython's fast-call convention), ``function`` for
the rest, ``Block`` for what ``enter`` runs.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines import recording
from tenferro.engines.cpu import (
    native_call,
    native_chain,
    native_entry,
    native_loop,
    native_match,
    native_memory,
    native_pool,
    native_results,
    native_sizes,
    native_steering,
)
from tenferro.engines.cpu.compiling import CodeSource, FunctionOf
from tenferro.engines.cpu.machine import memory_bytes
from tenferro.engines.cpu.native_language import native_names, translate
from tenferro.engines.cpu.native_prelude import FLOAT_CONTROL, FLUSH, PRELUDE_SYMBOLS, prelude
from tenferro.engines.cpu.toolchain import Library, compile_made
from tenferro.engines.sources import state_of
from tenferro.tracer import forking
from tenferro.tracer.config import config
from tenferro.tracer.errors import DtypeError, LoweringError, ShapeError
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.traffic import Origin

CLEAN = 2**63 - 1
"""The latch of a run in which no kernel found anything."""

_MODULES = (
    native_steering, native_pool, native_memory, native_entry, native_sizes, native_match, native_results, native_chain,
    native_call, native_loop,
)  # fmt: skip
_METH_FASTCALL = 0x80
_lock = threading.RLock()
forking.held(_lock)
_keep: list[Any] = []
_definitions: dict[tuple[Any, str], _MethodDef] = {}


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` of NumPy's ndarraytypes.h, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )  # fmt: skip


@dataclass(frozen=True)
class NativeModule:
    """The loaded module: its code, its builtins, and its memory handler's capsule."""

    library: Library
    enter: Callable[..., Any]
    enter_recorded: Callable[..., Any]
    empty_array: Callable[..., Any]
    capsule: Any


def module() -> NativeModule:
    """The native module, compiled and initialised at the first call. Raises LoweringError where the machine, CPython or
    NumPy is not as expected; then the reference engine serves."""
    with _lock:
        return _module()


@cache
def _module() -> NativeModule:
    check_layout()
    start = recording.now()
    library = compile_made(text, _identity(), 2, optimize=True, symbols=_symbols())
    # For ever: arrays that are freed after Python's modules, as a process ends, are freed by this code.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    recording.compiled(start, "", "native module", 2, library.source)
    _function(library, "initialise_memory")()
    _function(library, "set_bounds")(*memory_bounds())
    _function(library, "set_poison")(int(config().poison))
    _function(library, "set_float_state")(FLOAT_CONTROL | (FLUSH if config().flush_subnormals else 0))
    capsule = _handler_capsule(library)
    objects = (np.ndarray, np.dtype, TypeError, RuntimeError, ShapeError, DtypeError, capsule, None, tuple)
    table = (ctypes.c_void_p * len(objects)).from_address(_function(library, "objects_address")())
    table[:] = [id(o) for o in objects]
    _function(library, "set_main_thread")(threading.main_thread().ident)
    handlers = [library.address(n) for n in ("lock_memory", "unlock_memory", "after_fork_in_child")]
    _function(library, "watch_forks")(*handlers)
    recording.gauges.append(_function(library, "live_bytes"))
    enter, enter_recorded, empty = (_builtin(library, n) for n in ("enter", "enter_recorded", "empty_array"))
    return NativeModule(library, enter, enter_recorded, empty, capsule)


def memory_bounds() -> tuple[int, int]:
    """Bytes of dead large buffers to keep, bytes of live ones to allow."""
    settings = config()
    pool = memory_bytes() // 8 if settings.pool_bytes is None else settings.pool_bytes
    return pool, memory_bytes() if settings.memory_limit is None else settings.memory_limit


def text() -> str:
    """The module's LLVM text."""
    return translate(_MODULES, prelude())


def _identity() -> str:
    """What the text is made from: these sources under this Python and NumPy. To translate it takes 30 ms."""
    state = state_of(os.path.dirname(__file__))
    return text() if state is None else f"{state} {sys.version} {np.__version__} {platform.machine()} {sys.platform}"


def function(name: str, *, release_gil: bool = False) -> Callable[..., int]:
    """A native function by name, called through ctypes with ints."""
    return _function(module().library, name, release_gil=release_gil)


def _function(library: Library, name: str, *, release_gil: bool = False) -> Callable[..., int]:
    home = next(m for m in _MODULES if name in native_names(m))
    code = getattr(home, name).__code__
    make = ctypes.CFUNCTYPE if release_gil else ctypes.PYFUNCTYPE
    return make(ctypes.c_int64, *[ctypes.c_int64] * code.co_argcount)(library.address(name))


def _builtin(library: Library, name: str, flags: int = _METH_FASTCALL, receiver: object = None) -> Callable[..., Any]:
    """A builtin of a native function, whose first argument is the ``receiver``."""
    definition = _definition(library, name, flags)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.byref(definition), receiver, None)  # type: ignore[no-any-return]


def _definition(library: Library, name: str, flags: int) -> _MethodDef:
    """The one of its name, kept for ever: builtins point to it."""
    with _lock:
        found = _definitions.get((library, name))
        if found is None:
            found = _definitions[library, name] = _MethodDef(name.encode(), library.address(name), flags, None)
        return found


def server(words: np.ndarray[Any, Any], fallback: Callable[..., Any]) -> Callable[..., Any]:
    """The builtin ``serve`` over a function's state; where that serves nothing it calls ``fallback``."""
    return _builtin(module().library, "serve", native_call.FLAGS_OF_SERVE, (words, fallback))


def _handler_capsule(library: Library) -> Any:
    address = library.address
    handler = _Handler(
        b"tenferro", 1, None, address("handler_malloc"), address("handler_calloc"), address("handler_realloc"),
        address("handler_free"),
    )  # fmt: skip
    _keep.append(handler)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"mem_handler"
    _keep.append(name)
    return make(ctypes.addressof(handler), name, None)


def _symbols() -> dict[str, int]:
    """Addresses of what the module calls in libc, CPython and NumPy."""
    libc = ctypes.CDLL(None)
    names = (*PRELUDE_SYMBOLS, *native_memory.MEMORY_SYMBOLS, *native_entry.ENTRY_SYMBOLS)
    python_names = (
        *native_entry.PYTHON_SYMBOLS, *native_match.MATCH_SYMBOLS, *native_results.RESULT_SYMBOLS,
        *native_call.CALL_SYMBOLS,
    )  # fmt: skip
    found = [(name, libc) for name in names] + [(name, ctypes.pythonapi) for name in python_names]
    addresses = {name: ctypes.cast(getattr(source, name), ctypes.c_void_p).value or 0 for name, source in found}
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    api = (ctypes.c_void_p * 400).from_address(pointer(np._core._multiarray_umath._ARRAY_API, None))  # type: ignore[attr-defined]
    register = getattr(libc, "__register_atfork", None) or libc.pthread_atfork
    addresses["__register_atfork"] = ctypes.cast(register, ctypes.c_void_p).value or 0
    addresses["PyArray_NewFromDescr"] = api[native_entry.NEW_FROM_DESCRIPTOR] or 0
    addresses["PyArray_Return"] = api[native_results.RETURN_ARRAY] or 0
    addresses["PyArray_SetBaseObject"] = api[native_results.SET_BASE] or 0
    for name, names in native_match.OPTIONAL_SYMBOLS.items():
        known = [getattr(ctypes.pythonapi, n) for n in names if hasattr(ctypes.pythonapi, n)]
        # Where there is none, nobody calls it; the linker wants an address all the same.
        addresses[name] = ctypes.cast((known or [ctypes.pythonapi.PyErr_Clear])[0], ctypes.c_void_p).value or 0
    return addresses


@cache
def has_symbol(name: str) -> bool:
    """Whether this CPython has one of the optional functions."""
    return any(hasattr(ctypes.pythonapi, n) for n in native_match.OPTIONAL_SYMBOLS[name])


def _word(owner: object, offset: int, kind: type[Any] = ctypes.c_size_t) -> int:
    return int(kind.from_address(id(owner) + offset).value)


def check_layout() -> None:
    """Compare the offsets that native code uses with real objects. Raises LoweringError where one differs."""
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = base[1:, ::2]
    expected = {
        "type": (_word(view, native_entry.TYPE_AT), id(np.ndarray)),
        "data": (_word(view, native_entry.DATA_AT), view.ctypes.data),
        "descriptor": (_word(view, native_entry.DESCRIPTOR_AT), id(view.dtype)),
        "flags": (_word(base.copy(), native_entry.FLAGS_AT, ctypes.c_int32) & 0x507, 0x505),
        "type number": (_word(view.dtype, native_entry.TYPE_NUMBER_AT, ctypes.c_int32), view.dtype.num),
        "item size": (_word(view.dtype, native_entry.ITEM_SIZE_AT), view.dtype.itemsize),
        "size": (np.ndarray.__basicsize__ >= native_entry.HANDLER_AT + 8, True),
        "no handler in a view": (_word(view, native_entry.HANDLER_AT), 0),
        "handler": (_word(np.zeros(1), native_entry.HANDLER_AT), _word(np.ones(2), native_entry.HANDLER_AT)),
    }
    for name, (found, needed) in expected.items():
        if found != needed:
            raise LoweringError(f"native module: the ndarray's {name} is {found:#x}; needed {needed:#x}")


@dataclass(slots=True)
class _Launch:
    address: int | Callable[[int], int]
    total: int
    grain: int
    params: list[int]
    origin: Origin | None
    patches: list[tuple[int, int, int]] = field(default_factory=list)
    seconds: float = math.inf

    def level(self, level: int, longest: float) -> int:
        return level if not longest or self.seconds >= longest else 0


OUTPUT_WORDS = 4
"""Words of an output's description before its sizes."""


class Block:
    """Builds what ``enter`` runs: a template of int64 words, kept alive by this object once sealed.

    Words: [0] how many, [1] launches, [2] patches, [3] flags (bit 0: heavy, the GIL is released; above it: 1 + the
    first launch that no interrupt ends, 0 for none), [4] the latch, [5] outputs, [6] word offset of their table, [7] a
    copy's address of its record, then each launch (function address, word offset of its parameters, total, grain),
    each patch (array position, or -1 minus an output's index; word offset; byte offset), the parameters, the outputs'
    table and their descriptions (dtype address, bytes, tag, rank, sizes). A kernel is ``void f(ptr params, i64 begin,
    i64 end)`` over items of [0, total), called for chunks of ``grain``; parameter 0 holds the latch's word offset
    relative to ``params``. Several threads may run one block."""

    def __init__(self, *, heavy: bool = False) -> None:
        self.heavy = heavy
        self._held_from = -1
        self._launches: list[_Launch] = []
        self.outputs: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
        self.held: list[object] = []  # whose memory parameters point to
        self.buffer: np.ndarray[Any, np.dtype[np.int64]] | None = None

    def add_launch(
        self,
        address: int | Callable[[int], int],
        total: int,
        grain: int,
        params: Sequence[int],
        origin: Origin | None = None,
    ) -> int:
        """Append a launch and return its index. ``address``: a function's, or what finds it for a code generation level
        when the block is sealed. ``params[0]`` is a place for the latch's offset: whatever it holds is
        replaced. ``origin``: what profiles say of it. Raises ValueError for a grain below 1, a negative total or no
        parameter."""
        if grain < 1 or total < 0 or not params:
            raise ValueError(f"add_launch: total {total}, grain {grain}, {len(params)} params; needed >= 0, >= 1, >= 1")
        self._launches.append(_Launch(address, total, grain, list(params), origin))
        return len(self._launches) - 1

    @property
    def launches(self) -> int:
        """How many there are."""
        return len(self._launches)

    def estimate(self, first: int, seconds: float) -> None:
        """The launches from ``first`` on take about so long together, on one thread."""
        for launch in self._launches[first:]:
            launch.seconds = seconds

    def add_patch(self, array_position: int, launch: int, param: int, byte_offset: int = 0) -> None:
        """At each run, parameter ``param`` of ``launch`` becomes the data address of array ``array_position`` plus
        ``byte_offset``.

        Positions count the arrays passed to ``enter``; a negative one is what ``add_output`` returned."""
        target = self._launches[launch]
        if not 1 <= param < len(target.params) or array_position < -len(self.outputs):
            raise ValueError(
                f"add_patch: array {array_position}, parameter {param}; needed at least {-len(self.outputs)}, "
                f"and 1 to {len(target.params) - 1}"
            )
        target.patches.append((array_position, param, byte_offset))

    def add_output(self, shape: tuple[int, ...], dtype: np.dtype[Any], tag: int = 0) -> int:
        """Have every run make a fresh pooled array; returns the array position that patches name it by (negative).

        tag: from ``memory.line_tag``. Raises ValueError for a negative size, more than 64 axes or a dtype that is no
        number."""
        if min(shape, default=0) < 0 or len(shape) > native_entry.MAX_RANK or dtype.kind not in "?biufcmM":
            raise ValueError(
                f"add_output: {dtype} of shape {shape}; needed numbers, sizes of 0 or more, at most 64 axes"
            )
        self.outputs.append((tuple(shape), dtype, tag))
        return -len(self.outputs)

    def described(self) -> list[tuple[tuple[int, ...], np.dtype[Any], int]]:
        """The outputs of a run: shape, dtype and tag."""
        return self.outputs

    def hold_interrupts(self) -> None:
        """No interrupt ends the launches that are added from now on: they write what outlives the run."""
        self._held_from = len(self._launches)

    def resolve(self, names: Mapping[int, tuple[int, int]]) -> None:
        """Patches that name an array by one of the keys mean this array, and so many bytes more, from now on."""
        for launch in self._launches:
            for k, (position, param, offset) in enumerate(launch.patches):
                if position in names:
                    array, more = names[position]
                    launch.patches[k] = (array, param, offset + more)

    @property
    def origins(self) -> list[Origin | None]:
        """Of the launches, in order."""
        return [launch.origin for launch in self._launches]

    @property
    def bytes(self) -> int:
        """Of the sealed template."""
        return 0 if self.buffer is None else self.buffer.nbytes

    def is_brief(self, longest: float) -> bool:
        """Whether some launch takes less than so many seconds."""
        return any(launch.seconds < longest for launch in self._launches)

    def sources(self, level: int = 0, longest: float = 0.0) -> list[tuple[CodeSource, int]]:
        """What ``seal`` asks for functions, and at which levels."""
        found = [(x.address, x.level(level, longest)) for x in self._launches]
        return [(address.source, its) for address, its in found if isinstance(address, FunctionOf)]

    def seal(self, level: int = 0, longest: float = 0.0) -> int:
        """The template's address, its kernels at this code generation level, but for those at level 0 that take less
        than ``longest`` seconds. It stays valid while this object lives."""
        self.buffer = np.array(self.words(level, longest), dtype=np.int64)
        return int(self.buffer.ctypes.data)

    def words(self, level: int = 0, longest: float = 0.0) -> list[int]:
        """The template's words, as ``seal`` has them."""
        patch_count = sum(len(launch.patches) for launch in self._launches)
        fixed = native_entry.FIXED_WORDS + native_entry.LAUNCH_WORDS * len(self._launches)
        offset = fixed + native_entry.PATCH_WORDS * patch_count
        launches: list[int] = []
        patches: list[int] = []
        params: list[int] = []
        for launch in self._launches:
            address = (
                launch.address if isinstance(launch.address, int) else launch.address(launch.level(level, longest))
            )
            launches += [address, offset, launch.total, launch.grain]
            for position, param, byte_offset in launch.patches:
                patches += [position, offset + param, byte_offset]
            params += [native_entry.LATCH - offset, *launch.params[1:]]
            offset += len(launch.params)
        outputs = [0] * len(self.outputs)
        for shape, dtype, tag in self.outputs:
            outputs += [id(dtype), dtype.itemsize * math.prod(shape), tag, len(shape), *shape]
        flags = int(self.heavy) | self._held_from + 1 << native_entry.HELD_SHIFT
        head = [
            offset + len(outputs), len(self._launches), patch_count, flags, CLEAN, len(self.outputs), offset, 0,
        ]  # fmt: skip
        return [*head, *launches, *patches, *params, *outputs]
