"""What a trace rests on besides the values that its guards name: modules and functions found by it in, their source
files out, or the reason why another process could get another answer.

A trace is kept for other processes only where its Python code would do the same there. So everything that the code
names belongs to the user's own modules, whose files are compared, to NumPy and this package, whose versions are, or to
the part of Python's library that computes and does nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from tenferro.tracer.code_names import mentioned_names
from tenferro.tracer.lines import LOADED_AT
from tenferro.tracer.ownership import Ownership
from tenferro.tracer.stored import NotStored

_CLOCK_STEP = 20_000_000  # ns; the times of files are taken from a coarser clock
_PURE = frozenset(
    "__future__ _abc _bisect _collections _collections_abc _decimal _functools _heapq _operator _py_abc _sre _struct "
    "abc array bisect builtins cmath collections contextlib copy dataclasses decimal enum fractions functools heapq "
    "itertools math numbers numpy operator re statistics string struct tenferro types typing".split()
)
"""Packages whose functions give the same for the same, in every process."""
_IMPURE_BUILTINS = frozenset(
    "__import__ breakpoint compile eval exec globals hash id input locals memoryview open".split()
)
_IMPURE_NAMES = frozenset(
    "DataSource cpu_engines cuda_engine default_runtime fromfile fromregex genfromtxt get_printoptions getbufsize "
    "geterr geterrcall list_engines load loadtxt memmap mpi_mesh runtime show_config threads".split()
)
"""Of NumPy and this package: what reads files or the process's settings."""


class Dependencies:
    """Collects the user's own modules. Every method raises NotStored for what is not certain."""

    def __init__(self, owner: Ownership) -> None:
        self._owner = owner
        self.enumerations: dict[type, None] = {}  # those whose members are used
        self._modules: dict[str, None] = {}

    def module(self, name: str | None) -> None:
        """Code or a class of this module takes part."""
        match self._owner.of(name):
            case "own":
                self._modules[name or ""] = None
            case "other":
                raise NotStored(f"it uses {(name or '').split('.')[0]}, another package")
            case _:
                if (name or "").split(".")[0] not in _PURE:
                    raise NotStored(f"it uses {name}, which may answer differently in another process")

    def value(self, value: Any) -> None:
        """A module, function or class takes part."""
        if isinstance(value, ModuleType):
            self.module(value.__name__)
        elif not _is_of_namedtuple(value):
            module = getattr(value, "__module__", None)
            if isinstance(module, str):
                self.module(module)
            if (name := getattr(value, "__name__", "")) in _IMPURE_NAMES and self._owner.of(module) == "foreign":
                raise NotStored(f"it uses {name}, which may answer differently in another process")

    def builtin(self, name: str) -> None:
        """A name is read that no module defines."""
        if name in _IMPURE_BUILTINS:
            raise NotStored(f"it calls {name}, which may answer differently in another process")

    def functions(self, functions: Iterable[FunctionType]) -> None:
        """The code of these is run."""
        for function in functions:
            if self._owner.of(function.__module__) == "foreign" or _is_of_namedtuple(function):
                continue
            self.module(function.__module__)
            if function.__globals__.get("__name__") != function.__module__:
                self.module(function.__globals__.get("__name__"))
            found = mentioned_names(function.__code__) & _IMPURE_NAMES
            if found:
                raise NotStored(f"{function.__name__} names {min(found)}, which may answer differently elsewhere")

    def files(self) -> list[list[Any]]:
        """For each module its name, file, size and time of change in ns."""
        return [[name, *_stamp(name)] for name in sorted(self._modules)]


def _is_of_namedtuple(function: Any) -> bool:
    """Whether it is the ``__new__`` of a namedtuple, which its fields determine."""
    if not isinstance(function, FunctionType):
        return False
    return function.__code__.co_filename.startswith("<") and function.__module__.startswith("namedtuple_")


def _stamp(name: str) -> tuple[str, int, int]:
    file = getattr(sys.modules.get(name), "__file__", None)
    if not isinstance(file, str):
        raise NotStored(f"module {name or 'without a name'} has no file")
    try:
        info = os.stat(file)
    except OSError as error:
        raise NotStored(f"{file}: {error.strerror}") from None
    if info.st_mtime_ns >= LOADED_AT - _CLOCK_STEP:
        raise NotStored(f"{file} has changed since the process began")
    return file, info.st_size, info.st_mtime_ns


def are_unchanged(files: Iterable[list[Any]]) -> bool:
    """Whether the modules are loaded here from the same files, which are as they were."""
    try:
        return all(tuple(stamp) == _stamp(name) for name, *stamp in files)
    except NotStored:
        return False
