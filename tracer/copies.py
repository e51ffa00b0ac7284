"""Copies of what the functions of a trace read outside: the globals of functions, and containers with arrays in them.

What a traced function changes in a copy reaches the original: of globals at the next read, of containers when the trace
is over.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from tenferro.tracer.code_names import names_of
from tenferro.tracer.ownership import is_foreign
from tenferro.tracer.places import Place
from tenferro.tracer.records import dataclass

MAX_DEPTH = 32  # of containers in containers
CONTAINERS = (dict, list, tuple, deque, MappingProxyType, SimpleNamespace)
_MISSING = object()
_PLAIN = (int, float, complex, bool, str, type(None))
Give = Callable[[Any, Callable[[], Place] | None], Any]
"""What a traced function gets for a value from outside, and where that stood."""


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def items(value: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and elements of a container that can be copied; nothing for anything else."""
    if type(value) is SimpleNamespace:
        value = vars(value)
    if isinstance(value, dict | MappingProxyType):
        yield from value.items()
    elif isinstance(value, list | deque) or type(value) is tuple or _is_namedtuple(value):
        yield from enumerate(value)


def parts(value: Any, depth: int = 0) -> Iterator[Any]:
    """The value itself, or what stands in it where it is a container."""
    if not isinstance(value, CONTAINERS):
        yield value
    elif depth < MAX_DEPTH:
        for _, item in items(value):
            yield from parts(item, depth + 1)


def reached(value: Any) -> Iterator[Any]:
    """The parts of a value, and what those of them hold that call others."""
    for part in parts(value):
        yield part
        if type(part) is functools.partial:
            yield part.func
            yield from parts((*part.args, *part.keywords.values()))
        elif type(part) is MethodType:
            yield part.__func__


def contents_of(cell: CellType) -> Iterator[Any]:
    """What stands in the cell; nothing while it is empty."""
    try:
        yield cell.cell_contents
    except ValueError:
        return


def reads_nothing(function: Any) -> bool:
    """Whether all that a function reads outside are numbers, texts, and modules of Python, NumPy and this package, so
    that nothing has to be given in another form; False where that is not seen at once."""
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__:
        return False
    space = function.__globals__
    read = [space.get(name) for name in names_of(function.__code__)[0]]
    read += [v for cell in function.__closure__ or () for v in contents_of(cell)]
    return all(type(v) in _PLAIN or (type(v) is ModuleType and is_foreign(v.__name__)) for v in read)


class GlobalsCopy(dict[str, Any]):
    """The globals of a copied function: reads go to the module, through the substitution; what the function assigns
    reaches the module at the next read."""

    def __init__(self, original: dict[str, Any], give: Give) -> None:
        super().__init__(original)
        self.original = original
        self.assigned: set[str] = set()
        self._give = give
        self._seen = dict(original)

    def __getitem__(self, name: str) -> Any:
        if self.assigned:
            self.flush(self.assigned)
            if name in self.assigned:
                return self.original[name]
        value = self.original[name]
        return self._give(value, lambda: Place((self.original, name), (), name))

    def hold(self, name: str, value: Any) -> None:
        """Give ``value`` to what reads the dict without ``__getitem__``."""
        self._seen[name] = value
        self[name] = value

    def flush(self, names: Sequence[str] | set[str]) -> None:
        """Carry assignments of these names into the module."""
        for name in names:
            own, seen = self.get(name, _MISSING), self._seen.get(name, _MISSING)
            if own is seen:
                continue
            if own is _MISSING:
                self.original.pop(name, None)
                self._seen.pop(name, None)
            else:
                self.original[name] = self._seen[name] = own

    def flush_all(self) -> None:
        """Carry every assignment into the module."""
        self.flush([*self, *(n for n in self._seen if n not in self)])


@dataclass(slots=True)
class ContainerCopy:
    """A copied container: what it is a copy of, and what stood in it at first."""

    original: Any
    copy: Any
    first: list[tuple[Any, Any]]

    def end(self, taken_back: Callable[[Any], Any]) -> None:
        """Carry what was changed in the copy back to the original; ``taken_back`` gives the outside value of one that
        stands in the copy."""
        if isinstance(self.original, list | deque):
            self._end_list(taken_back)
        elif isinstance(self.original, dict):
            self._end_dict(taken_back)

    def _end_list(self, taken_back: Callable[[Any], Any]) -> None:
        now, original = self.copy, self.original
        if len(now) == len(self.first) and all(a is b for a, (_, b) in zip(now, self.first, strict=True)):
            return
        original.clear()
        original.extend([taken_back(v) for v in now])

    def _end_dict(self, taken_back: Callable[[Any], Any]) -> None:
        now, original = self.copy, self.original
        first = dict(self.first)
        kept = {taken_back(k) for k in now}
        for key in [k for k in original if k not in kept]:
            del original[key]
        for key, value in now.items():
            outside = taken_back(key)
            if value is not first.get(key, _MISSING) and original.get(outside, _MISSING) is not value:
                original[outside] = taken_back(value)
