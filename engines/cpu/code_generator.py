"""LLVM text in, the bytes of an object out, on several threads at once.

llvmlite takes one lock round every call of LLVM. Each text has a context and a target machine of its own here, with
which LLVM needs none (its "Programmer's Manual", on contexts and threads), so the one long call goes without: code
generation. Where llvmlite's function is not the one that is known here, threads wait for one another.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tenferro.engines.cpu.object_symbols import elf_code_bytes, undefined_symbols
from tenferro.tracer.errors import LoweringError

if TYPE_CHECKING:
    from tenferro.engines.cpu.toolchain import Target

# What LLVM's code generator itself may call. No libm: a scalar function has one definition for every engine.
ALLOWED_SYMBOLS = frozenset({"memcpy", "memset", "memmove", "memcmp", "bzero", "_GLOBAL_OFFSET_TABLE_"})
# What simplifies a text, in order; part of the cache's key.
PASSES = ("always_inliner", "global_dead_code_eliminate", "sroa", "instruction_combine", "simplify_cfg")


def code_model(triple: str) -> tuple[str, str]:
    """How code refers to what lies elsewhere, as llvmlite names it. Distances on x86-64: with absolute addresses, which
    LLVM uses for code that is loaded at once, its quick instruction selection takes no call and no constant."""
    return ("pic", "small") if triple.startswith("x86_64") and "linux" in triple else ("default", "jitdefault")


_lock = threading.Lock()
_idle_machines: dict[tuple[int, Target], list[Any]] = {}


def emitted(llvm: ModuleType, text: str, level: int, target: Target, optimize: bool, symbols: dict[str, int]) -> bytes:
    """8 bytes of code size, then the object. Raises LoweringError as ``compile_text`` does."""
    with machine(llvm, level, target) as own, _module(llvm, text, own) as module:
        try:
            module.verify()
        except RuntimeError as error:
            raise LoweringError(f"compile: the LLVM text is malformed; {str(error).strip()}") from error
        if optimize:
            _clean(llvm, module, own)
        data = _object(llvm, own, module)
    unknown = undefined_symbols(data) - ALLOWED_SYMBOLS - symbols.keys()
    if unknown:
        raise LoweringError(
            f"compile: the object needs {', '.join(sorted(unknown))}; needed code that calls nothing outside it"
        )
    return _code_bytes(llvm, data).to_bytes(8, "little") + data


def _code_bytes(llvm: ModuleType, data: bytes) -> int:
    if (size := elf_code_bytes(data)) is not None:
        return size
    sections = llvm.ObjectFileRef.from_data(data).sections()
    return sum(int(section.size()) for section in sections if section.is_text())


def assembly(llvm: ModuleType, text: str, level: int, target: Target) -> str:
    """The assembly text."""
    with machine(llvm, level, target) as own, _module(llvm, text, own) as module:
        return str(own.emit_assembly(module))


@contextmanager
def machine(llvm: ModuleType, level: int, target: Target) -> Iterator[Any]:
    """A target machine for a level and target that no other thread has meanwhile."""
    with _lock:
        idle = _idle_machines.setdefault((level, target), [])
        own = idle.pop() if idle else None
    if own is None:
        triple = llvm.get_process_triple()
        reloc, model = code_model(triple)
        own = llvm.Target.from_triple(triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=level, reloc=reloc, codemodel=model, jit=True
        )
    yield own
    idle.append(own)


@contextmanager
def _module(llvm: ModuleType, text: str, own: Any) -> Iterator[Any]:
    """The text as a module in a context of its own. Both are closed where nothing is raised. An interrupt may meet any
    step, and a module that outlives its context ends the process: then they are left to Python, which lets go of the
    module first, for it holds the context."""
    context = llvm.create_context()
    module = parsed(llvm, text, own, context)
    yield module
    module.close()
    context.close()


def parsed(llvm: ModuleType, text: str, own: Any, context: Any) -> Any:
    """The text as a module."""
    try:
        module = llvm.parse_assembly(text, context)
    except RuntimeError as error:
        raise LoweringError(f"compile: the LLVM text does not parse; {str(error).strip()}") from error
    module.triple = llvm.get_process_triple()
    module.data_layout = str(own.target_data)
    return module


def _clean(llvm: ModuleType, module: Any, own: Any) -> None:
    """Functions marked ``alwaysinline`` in place, memory to registers, local simplification. The code generator inlines
    nothing itself: with each one-line function of the text called, a native call took 0.3 µs instead of 0.16. LLVM's O2
    passes take 0.3 s more, which the first process on a machine would wait for."""
    builder = llvm.create_pass_builder(own, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)


def _object(llvm: ModuleType, own: Any, module: Any) -> bytes:
    emit = unlocked(llvm)
    if emit is None:
        data: bytes = own.emit_object(module)
        return data
    library = llvm.ffi.lib
    with llvm.ffi.OutputString() as problem:
        buffer = emit(own, module, 1, problem)
        if not buffer:
            raise RuntimeError(str(problem))
    try:
        return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)


def unlocked(llvm: ModuleType) -> Callable[..., Any] | None:
    """llvmlite's function that generates code, as ctypes has it: without the lock. None for another than is known."""
    known = llvm.ffi
    emit = getattr(getattr(known.lib, "LLVMPY_TargetMachineEmitToMemory", None), "_cfn", None)
    wanted = ["LLVMTargetMachineRef", "LLVMModuleRef", "LLVMMemoryBufferRef", "OutputString"]
    if emit is None or not all(hasattr(known, name) for name in wanted):
        return None
    arguments = [known.LLVMTargetMachineRef, known.LLVMModuleRef, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    if list(emit.argtypes or ()) != arguments or emit.restype is not known.LLVMMemoryBufferRef:
        return None
    found: Callable[..., Any] = emit
    return found
