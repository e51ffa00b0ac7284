"""LLVM text in, loaded machine code out. The only place that imports llvmlite, and only at the first compile: a process
that finds all of its objects in the disk cache does without.

text → key → disk cache → object → its own memory. A fork waits until no thread compiles or loads: a child forked in the
middle of a compile would inherit LLVM's locks and hang at its own first compile.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any

from tenferro.engines.cpu import code_generator, object_loader
from tenferro.engines.cpu.permute import Permutes
from tenferro.engines.cpu.uninterrupted import uninterrupted
from tenferro.engines.disk_cache import HOSTS, OBJECTS, DiskCache, configured, entry_key
from tenferro.engines.recording import Source
from tenferro.tracer import forking
from tenferro.tracer.config import config
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.records import dataclass

LEVELS = (0, 1, 2, 3)
_X86_64_V3 = frozenset({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"})
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})

_lock = threading.RLock()
_compiling = forking.Shared()
forking.held(_lock)
forking.held(_compiling)

_dead_engines: deque[Any] = deque()


@dataclass(frozen=True, slots=True)
class Target:
    """What code is generated for: LLVM's CPU name and feature string, and the width of its widest registers."""

    cpu: str
    features: str
    vector_bits: int

    @property
    def permutes(self) -> Permutes:
        """The instructions for tables in registers."""
        on = {name[1:]: name[0] == "+" for name in self.features.split(",")}  # the last word on a feature counts
        if self.vector_bits == 512 and on.get("avx512f"):
            return "avx512"
        return "avx2" if on.get("avx2") else "none"


@dataclass(frozen=True, slots=True)
class Host:
    """What LLVM says of this machine and of itself: its version, the triple of the process, the CPU's name, all of its
    features in LLVM's words, and those that it has."""

    llvm_version: str
    triple: str
    cpu: str
    features: str
    enabled: frozenset[str]


@contextmanager
def _llvm() -> Iterator[ModuleType]:
    """llvmlite's binding, to be used only inside: the lock is held."""
    with _lock:
        yield _binding()


def _close_dead() -> None:
    """Unload the code of libraries that have died. The lock is held."""
    while _dead_engines:
        _dead_engines.popleft().close()


@cache
def _binding() -> ModuleType:
    import llvmlite.binding as llvm

    binding: ModuleType = llvm
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def host() -> Host:
    """Asked of LLVM once per machine: the answer is kept on disk, by what the system says of the processor."""
    store, identity = configured(HOSTS), _processor()
    if store is None or identity is None:
        return _asked_host()
    key = entry_key("host", identity, _llvmlite_state())
    with suppress(ValueError, UnicodeDecodeError):
        if (payload := store.load(key)) is not None:
            version, triple, cpu, features, enabled = payload.decode().split("\n")
            return Host(version, triple, cpu, features, frozenset(enabled.split(",")))
    found = _asked_host()
    parts = (found.llvm_version, found.triple, found.cpu, found.features, ",".join(sorted(found.enabled)))
    store.store(key, "\n".join(parts).encode())
    return found


def _asked_host() -> Host:
    with _llvm() as llvm:
        found = llvm.get_host_cpu_features()
        version = ".".join(map(str, llvm.llvm_version_info))
        enabled = frozenset(name for name, is_on in found.items() if is_on)
        return Host(version, llvm.get_process_triple(), llvm.get_host_cpu_name(), found.flatten(), enabled)


def _processor() -> str | None:
    """What Linux says of an x86-64 processor, whose cores are alike; None elsewhere."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            first = file.read(1 << 14).split("\n\n")[0].splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    telling = ("vendor_id", "cpu family", "model", "stepping", "flags")
    lines = [line for line in first if line.startswith(telling)]
    return "\n".join(lines) if any(line.startswith("flags") for line in lines) else None


def _llvmlite_state() -> str:
    """llvmlite's version, and which build of LLVM it brings."""
    import llvmlite

    folder = os.path.join(os.path.dirname(llvmlite.__file__), "binding")
    with suppress(OSError), os.scandir(folder) as found:
        for item in found:
            if item.name.startswith("libllvmlite."):
                return f"{llvmlite.__version__} {item.path} {item.stat().st_size} {item.stat().st_mtime_ns}"
    return f"{llvmlite.__version__} {folder}"


@cache
def host_target() -> Target:
    """The machine that this process runs on, narrowed to ``TENFERRO_VECTOR_BITS`` where that is set."""
    found = host()
    cpu, features = found.cpu, found.features
    bits = 512 if found.enabled >= _AVX512 else 256 if "avx2" in found.enabled else 128
    if platform.machine().lower() in ("x86_64", "amd64"):
        features += ",-prefer-256-bit"
    if bits == 512 and config().vector_bits == 256:
        bits, features = 256, features + ",-avx512f"
    return Target(cpu, features, bits)


@cache
def supported() -> bool:
    """Whether this machine and system are served: x86-64-v3 or AArch64 with NEON, and an object format that can be
    checked. Elsewhere the reference engine serves."""
    if sys.platform not in ("linux", "darwin") or sys.maxsize < 2**32:
        return False
    match platform.machine().lower():
        case "aarch64" | "arm64":
            return True
        case "x86_64" | "amd64":
            return host().enabled >= _X86_64_V3
        case _:
            return False


@cache
def disk_cache() -> DiskCache | None:
    """The process's disk cache, None where ``TENFERRO_CACHE=0``."""
    return configured(OBJECTS)


class Library:
    """Loaded machine code. It lives as long as this object: callers keep it while an address of it can be called."""

    def __init__(
        self, text: Callable[[], str], level: int, target: Target, engine: Any, code_bytes: int, from_cache: bool,
        key: str = "", symbols: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """``key``: of its object in the disk cache, which needs these ``symbols``."""
        self._text = text
        self.key = key
        self.symbols = symbols
        self.level = level
        self.target = target
        self.code_bytes = code_bytes
        self.from_cache = from_cache
        self._engine = engine
        self._addresses: dict[str, int] = {}
        # A finalizer may run inside any allocation of any thread, so it takes no lock: the next use of LLVM closes the
        # engine.
        self._finalizer = weakref.finalize(self, _dead_engines.append, engine)
        self._finalizer.atexit = False

    @property
    def text(self) -> str:
        """What it was compiled from."""
        return self._text()

    @property
    def source(self) -> Source:
        """Where it came from."""
        return "disk cache" if self.from_cache else "compiled"

    def address(self, name: str) -> int:
        """Where function or global ``name`` stands. Raises LoweringError if the text does not define it."""
        found = self._addresses.get(name)
        if found is None:
            if not self._finalizer.alive:
                raise LoweringError(f"address: {name} is asked of a closed library; needed an open one")
            with _lock:
                found = self._engine.address(name)
            if not found:
                raise LoweringError(f"address: {name} is not defined; needed a name that the text defines")
            self._addresses[name] = found
        return found

    def asm(self) -> str:
        """The assembly text, generated anew."""
        with _compiling.own(), _llvm() as llvm:
            return code_generator.assembly(llvm, self.text, self.level, self.target)

    def close(self) -> None:
        """Unload the code; its addresses are dead afterwards. Closing twice does nothing."""
        if self._finalizer.detach() is not None:
            self._addresses.clear()
            _dead_engines.append(self._engine)
            with _lock:
                _close_dead()


def compile_text(
    text: str,
    level: int,
    target: Target | None = None,
    *,
    optimize: bool = False,
    symbols: dict[str, int] | None = None,
) -> Library:
    """Compile LLVM assembly text and load it.

    level: LLVM's code generation level, 0 to 3. target: the host's by default. optimize: simplify the
    text first (kernels come in explicit vector form and need none). symbols: names outside the allow-list that the text
    may use, with their addresses in this process; the text itself never holds an address, for the object outlives the
    process. Raises LoweringError for text that does not parse and for objects that need any other symbol."""
    return compile_made(lambda: text, text, level, target, optimize=optimize, symbols=symbols)


def compile_made(
    text: Callable[[], str],
    identity: str,
    level: int,
    target: Target | None = None,
    *,
    optimize: bool = False,
    symbols: dict[str, int] | None = None,
) -> Library:
    """``compile_text`` of a text that is made only where no object of it is known. ``identity``: another text, equal
    exactly for equal ones; it takes its place in the key."""
    if level not in LEVELS:
        raise LoweringError(f"compile: level {level}; needed one of {LEVELS}")
    target = target or host_target()
    symbols = symbols or {}
    with _lock:
        _close_dead()
        store = disk_cache()
        key = _key(identity, level, target, optimize, symbols)
    payload = store.load(key) if store is not None else None
    from_cache = payload is not None
    if payload is None:
        payload = _compile(text(), level, target, optimize, symbols)
        if store is not None:
            store.store(key, payload)
    code_bytes = int.from_bytes(payload[:8], "little")
    with _compiling.own():  # not round the compilation: a thread of its own may do it, and asks for its own part
        loaded = _load(payload[8:], symbols)
    return Library(text, level, target, loaded, code_bytes, from_cache, key, tuple(symbols))


def loaded_object(key: str, symbols: dict[str, int]) -> Any:
    """The code of a library by the key of its object: what has ``address(name)``. LookupError where the disk cache has
    no such object."""
    store = disk_cache()
    payload = None if store is None else store.load(key)
    if payload is None:
        raise LookupError(key)
    with _lock:
        return _load(payload[8:], symbols)


def _key(identity: str, level: int, target: Target, optimize: bool, symbols: dict[str, int]) -> str:
    passes = ",".join(code_generator.PASSES if optimize else ())
    return entry_key(
        identity, str(level), passes, host().llvm_version, host().triple, *code_generator.code_model(host().triple),
        target.cpu, target.features, ",".join(sorted(symbols)),
    )  # fmt: skip


def _compile(text: str, level: int, target: Target, optimize: bool, symbols: dict[str, int]) -> bytes:
    """The cache's payload: 8 bytes of code size, then the object."""

    def emitted() -> bytes:
        with _compiling.own():
            with _lock:
                llvm = _binding()
            return code_generator.emitted(llvm, text, level, target, optimize, symbols)

    return uninterrupted(emitted) if threading.current_thread() is threading.main_thread() else emitted()


class _Engine:
    """Code that LLVM has loaded."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name) or self._engine.get_global_value_address(name))

    def close(self) -> None:
        self._engine.close()


@cache
def _of_libc() -> dict[str, int]:
    """Addresses of what LLVM's code generator itself may call."""
    libc = ctypes.CDLL(None)
    found = {name: getattr(libc, name, None) for name in code_generator.ALLOWED_SYMBOLS}
    return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in found.items() if f is not None}


def _load(data: bytes, symbols: dict[str, int]) -> Any:
    """What has ``address(name)`` and ``close()``."""
    with suppress(struct.error, IndexError, OSError):
        if (loaded := object_loader.load(data, {**_of_libc(), **symbols})) is not None:
            return loaded
    with _llvm() as llvm:
        for name, address in symbols.items():
            llvm.add_symbol(name, address)
        return _Engine(_loaded_by_llvm(llvm, data))


def _loaded_by_llvm(llvm: ModuleType, data: bytes) -> Any:
    # The engine owns its target machine, so it cannot share the one that compiles. It only loads: a machine without CPU
    # and features does, and is made in 35 µs instead of 155.
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(opt=0, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return engine
