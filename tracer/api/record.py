"""What a NumPy-level function is to the rest of the package: one record each, in one dict by NumPy's name.

``tenferro.tracer.api.registry`` fills the dict from the families beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """``function`` runs while a trace does. ``arrays``: the parameters that hold arrays (or sequences of them), or
    numbers that are no reason for a program of their own; all others are static."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[str, ...]

    @property
    def static(self) -> tuple[str, ...]:
        """The parameters that hold no arrays."""
        return tuple(p for p in inspect.signature(self.function).parameters if p not in self.arrays)


@dataclass(frozen=True, slots=True)
class ApiFunction(TracedFunction):
    """A function with NumPy's signature. ``view``: the result may share the first array's memory. ``reference``: the
    same on ndarrays, for operations among known cells."""

    view: bool
    reference: Callable[..., Any]


API: dict[str, ApiFunction] = {}
