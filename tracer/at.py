"""``x.at[i].set(v)``: an array, an index and values in, a changed copy out; the array itself stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np


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

    Where an index array names an element twice, ``set`` keeps the last value and the others combine all of them."""

    __slots__ = ("_array", "_key")

    def __init__(self, array: Any, key: Any) -> None:
        self._array = array
        self._key = key

    def get(self) -> Any:
        """The values there, as ``x[key]``."""
        return self._array[self._key]

    def set(self, values: Any) -> Any:
        """``x[key] = values``."""
        result = self._array.copy()
        result[self._key] = values
        return result

    def _combine(self, ufunc: np.ufunc, values: Any) -> Any:
        result = self._array.copy()
        ufunc.at(result, self._key, values)
        return result

    def add(self, values: Any) -> Any:
        """``x[key] += values``."""
        return self._combine(np.add, values)

    def subtract(self, values: Any) -> Any:
        """``x[key] -= values``."""
        return self._combine(np.subtract, values)

    def multiply(self, values: Any) -> Any:
        """``x[key] *= values``."""
        return self._combine(np.multiply, values)

    def divide(self, values: Any) -> Any:
        """``x[key] /= values``."""
        return self._combine(np.divide, values)

    def min(self, values: Any) -> Any:
        """The smaller of ``x[key]`` and ``values``."""
        return self._combine(np.minimum, values)

    def max(self, values: Any) -> Any:
        """The larger of ``x[key]`` and ``values``."""
        return self._combine(np.maximum, values)
