"""Blocks that another process has bound: a call's block written down, and made runnable from the objects on disk.

In: an executable and the inputs that it has just run on. Out: the words of its block, which kernels they name and the
dtypes and lines of what it makes; and in another process a function of inputs of the same layouts, without a program, a
plan or a kernel's text. Whoever keeps them sees to it that sources, machine and settings are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu import memory, native, native_entry, threads
from tenferro.engines.cpu.compiling import FunctionOf
from tenferro.engines.cpu.toolchain import Library, loaded_object
from tenferro.tracer.lines import SourceLine

if TYPE_CHECKING:
    from tenferro.engines.cpu.engine import CpuExecutable

Array = np.ndarray[Any, Any]


def written(unit: CpuExecutable, inputs: Sequence[Any]) -> list[Any] | None:
    """The block that the executable runs for inputs of these layouts, as JSON can hold it; None where that is not all
    there is to run, or something in it is this process's own."""
    from tenferro.engines.cpu.engine import _layout_key

    bound = unit._bound.get(_layout_key(inputs, None))
    if bound is None or bound.only is None or bound.lent or bound.tail is not None or unit.share is not None:
        return None
    block = bound.only.block
    if block.buffer is None:
        return None
    libraries: dict[str, list[Any]] = {}
    launches = []
    for k, launch in enumerate(block._launches):
        found = _entry(launch.address, int(block.buffer[_launch_at(k)]))
        if found is None:
            return None
        library, entry = found
        if (needed := _needed(library)) is None:
            return None
        libraries.setdefault(library.key, [library.key, needed])
        launches.append([list(libraries).index(library.key), entry])
    made = [[dtype.str, _line(tag)] for _, dtype, tag in block.outputs]
    words = block.buffer.tolist()
    return [words, list(libraries.values()), launches, made, list(bound.only.positions), list(bound.picks)]


def _launch_at(k: int) -> int:
    """The word of launch k that holds the address of its function."""
    return native_entry.FIXED_WORDS + native_entry.LAUNCH_WORDS * k


def _entry(address: Any, sealed: int) -> tuple[Library, str] | None:
    """The library and the name of a function of a kernel or a matrix product; None for any other."""
    if not isinstance(address, FunctionOf):
        return None
    name = address.name
    return next(((x, name) for x in address.source.ready() if x.key and x.address(name) == sealed), None)


def _needed(library: Library) -> list[list[str]] | None:
    """The expansions that a kernel calls, with the keys of their objects."""
    from tenferro.engines.cpu.kernel import _expansions

    found = [[name, _expansions[name].key] for name in library.symbols if name in _expansions]
    return found if len(found) == len(library.symbols) and all(key for _, key in found) else None


def _line(tag: int) -> list[Any] | None:
    line = memory.tagged_line(tag)
    return None if line is None else [line.file, line.line, line.function]


class ReadyBlock:
    """A block that is ready to run. LookupError where an object that it needs is on the disk no longer."""

    def __init__(self, x: Sequence[Any]) -> None:
        words, libraries, launches, made, positions, picks = x
        self._positions: list[int] = positions
        self._picks: list[int] = picks
        self._held: list[Any] = []  # code and dtypes that the words point to
        buffer = np.array(words, dtype=np.int64)
        loaded = [self._library(*library) for library in libraries]
        for k, (number, entry) in enumerate(launches):
            buffer[_launch_at(k)] = _address(loaded[number], entry)
        at = int(buffer[native_entry.OUTPUTS_AT]) + len(made)
        for dtype, line in made:
            kind = np.dtype(dtype)
            self._held.append(kind)
            buffer[at] = id(kind)
            buffer[at + 2] = memory.line_tag(None if line is None else SourceLine(*line))
            at += native_entry.OUTPUT_WORDS + int(buffer[at + 3])
        self._buffer = buffer
        self._at = int(buffer.ctypes.data)
        self._enter = native.module().enter

    def _library(self, key: str, needed: Sequence[Sequence[str]]) -> Any:
        symbols = {name: _address(self._library(of, ()), name) for name, of in needed}
        found = loaded_object(key, symbols)
        self._held.append(found)
        return found

    def run(self, inputs: Sequence[Array | int]) -> list[Array] | None:
        """The outputs; None where the run found something to report, or no memory: the long way says what it is."""
        made = self._enter(self._at, threads.count(), *[inputs[p] for p in self._positions])
        if made is None or made[0] != native.CLEAN:
            return None
        return [made[k] for k in self._picks]


def _address(code: Any, name: str) -> int:
    found = int(code.address(name))
    if not found:
        raise LookupError(name)
    return found


def layout_text(inputs: Sequence[Any]) -> str | None:
    """What a block is bound to; None for inputs that native code does not take as they are."""
    parts = []
    for x in inputs:
        if type(x) is int:
            parts.append(str(x))
        elif type(x) is np.ndarray and x.flags.aligned and x.dtype.isnative:
            parts.append(f"{x.dtype.str}{x.shape}{x.strides}")
        else:
            return None
    return " ".join(parts)
