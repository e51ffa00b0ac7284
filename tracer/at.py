"""``x.at[i].set(v)``: an array, an index and values in, a changed copy out; the array itself stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import at, user_line


class At:
    """``x.at``; indexing it names the place to change."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> Place:
        return Place(self._array, key)

    def __repr__(self) -> str:
        return f"<at of {self._array!r}>"


class Place:
    """``x.at[key]``. Each method returns a copy of ``x`` changed there; an index out of range raises IndexError.

    Where an index array names an element twice, ``set`` keeps the last value and the others combine all of them.
    ``mode`` says otherwise what becomes of an integer out of range: "clip" takes the nearest element, "drop" (or
    "fill") writes nothing there and reads ``fill_value``. The hints that JAX takes beside it change nothing."""

    __slots__ = ("_array", "_key")

    def __init__(self, array: Any, key: Any) -> None:
        self._array = array
        self._key = key

    def get(
        self, *, mode: Any = None, fill_value: Any = None, indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> Any:  # fmt: skip
        """The values there, as ``x[key]``; ``fill_value`` is NaN, the lowest signed or highest unsigned number or
        True, where it is not given."""
        array, key, _ = self._within(mode, "get", fill_value)
        return array[key]

    def set(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """``x[key] = values``."""
        array, key, kept = self._within(mode, "set")
        result = array.copy()
        result[key] = values
        return result if kept is None else result[kept]

    def apply(
        self, function: Callable[[Any], Any], *, mode: Any = None, indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> Any:  # fmt: skip
        """``x[key] = function(x[key])``, once for an element that is named twice too."""
        array, key, kept = self._within(mode, "apply")
        result = array.copy()
        result[key] = function(array[key])
        return result if kept is None else result[kept]

    def _within(self, mode: Any, name: str, fill_value: Any = None) -> tuple[Any, Any, Any]:
        """The array and the key to use, and what to keep of the result: None where that is all of it."""
        wanted = _mode(mode, name)
        if wanted == "raise":
            return self._array, self._key, None
        array, key = self._array, _spread(self._array.ndim, self._key)
        sizes = {axis: array.shape[axis] for part, axis in key if _is_integer(part)}
        moved = _clipped if wanted == "clip" else _dropped
        inside = tuple(moved(part, sizes[axis]) if _is_integer(part) else part for part, axis in key)
        if wanted == "clip" or not sizes:
            return array, inside, None
        fill = _lost(array.dtype) if fill_value is None and name == "get" else fill_value or 0
        room = [(0, int(axis in sizes)) for axis in range(array.ndim)]  # what is out of range goes there
        return np.pad(array, room, constant_values=fill), inside, tuple(slice(0, n) for n in array.shape)

    def _combine(self, ufunc: np.ufunc, values: Any, mode: Any, name: str) -> Any:
        array, key, kept = self._within(mode, name)
        result = array.copy()
        ufunc.at(result, key, values)
        return result if kept is None else result[kept]

    def add(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """``x[key] += values``."""
        return self._combine(np.add, values, mode, "add")

    def subtract(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """``x[key] -= values``."""
        return self._combine(np.subtract, values, mode, "subtract")

    def multiply(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """``x[key] *= values``."""
        return self._combine(np.multiply, values, mode, "multiply")

    def divide(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """``x[key] /= values``."""
        array, key, kept = self._within(mode, "divide")
        by = At(np.ones_like(array))[key].multiply(values)
        return array / by if kept is None else (array / by)[kept]

    def min(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """The smaller of ``x[key]`` and ``values``."""
        return self._combine(np.minimum, values, mode, "min")

    def max(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """The larger of ``x[key]`` and ``values``."""
        return self._combine(np.maximum, values, mode, "max")


_MODES = {
    None: "raise", "promise_in_bounds": "raise", "raise": "raise", "clip": "clip", "drop": "drop", "fill": "drop",
}  # fmt: skip


def _mode(mode: Any, name: str) -> str:
    """Which of "raise", "clip" and "drop" a mode asks for: a text, None, or one of JAX's own."""
    text = getattr(mode, "name", mode)
    found = _MODES.get(text.lower() if isinstance(text, str) else text) if isinstance(text, str | None) else None
    if found is None:
        raise TraceError(
            f"at[...].{name}: mode {mode!r}; 'clip', 'drop', 'fill', 'promise_in_bounds' or None is "
            f"needed{at(user_line())}"
        )
    return found


def _spread(rank: int, key: Any) -> list[tuple[Any, int]]:
    """The parts of a key, each with the axis that it speaks of; an ellipsis is written out."""
    parts = [np.asarray(p) if isinstance(p, list) else p for p in (key if isinstance(key, tuple) else (key,))]
    left = rank - sum(_axes_of(p) for p in parts)
    spread: list[tuple[Any, int]] = []
    axis = 0
    for part in parts:
        written = [slice(None)] * max(left, 0) if part is Ellipsis else [part]
        for one in written:
            spread.append((one, axis))
            axis += _axes_of(one)
    return spread


def _axes_of(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool | np.bool):
        return 0
    return part.ndim if getattr(part, "dtype", None) == np.bool else 1


def _is_integer(part: Any) -> bool:
    if part is None or isinstance(part, slice | bool | np.bool):
        return False
    return getattr(part, "dtype", None) != np.bool


def _clipped(part: Any, size: Any) -> Any:
    if not hasattr(part, "dtype"):
        return max(part, -size) if part < size else size - 1
    return np.clip(_from_start(part, size), 0, size - 1)


def _dropped(part: Any, size: Any) -> Any:
    """An index that is ``size`` where it was out of range."""
    if not hasattr(part, "dtype"):
        return part % size if -size <= part < size else size
    index = _from_start(part, size)
    return np.where((index < 0) | (index >= size), size, index)


def _from_start(part: Any, size: Any) -> Any:
    index = part.astype(np.int64)
    return np.where(index < 0, index + size, index)


def _lost(dtype: np.dtype[Any]) -> Any:
    """What JAX reads out of range."""
    if dtype.kind in "fc":
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
