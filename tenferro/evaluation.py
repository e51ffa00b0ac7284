"""How operations on concrete arrays run: what computes them in, the one place where arrays find it out.

``tn.Array`` has operators, and what computes them makes arrays: each would import the other. So arrays ask here, and
``tenferro`` itself says what computes, as a loader: what traces and compiles is imported at the first operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from tenferro.array import Array


class Evaluator(Protocol):
    """What computes: calls of the API's functions by name, and NumPy's protocols."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of the API."""

    def ufunc_call(self, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``__array_ufunc__`` of an array."""

    def function_call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``__array_function__`` of an array."""

    def jitted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of tenferro's own on arrays, jitted: it reads nothing from outside, and its line is its
        caller's."""

    def set_item(self, array: Array, key: Any, value: Any) -> None:
        """``array[key] = value``."""

    def update_in_place(self, array: Array, name: str, other: Any) -> Array:
        """``array op= other``."""


_loaders: list[Callable[[], Evaluator]] = []
_loaded: list[Evaluator] = []


def use(loader: Callable[[], Evaluator]) -> None:
    """Arrays are computed by what ``loader()`` gives, called once, at the first operation."""
    _loaders[:] = [loader]
    _loaded.clear()


def evaluator() -> Evaluator:
    """What computes operations on arrays."""
    if not _loaded:
        _loaded.append(_loaders[0]())
    return _loaded[0]
