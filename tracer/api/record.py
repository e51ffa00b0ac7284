"""What a NumPy-level function is to the rest of the package: one record each, in one dict by NumPy's name.

``tenferro.tracer.api.registry`` fills the dict from the families beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ApiFunction:
    """``function`` has NumPy's signature and runs while a trace does. ``arrays``: the parameters that hold arrays (or
    sequences of them); all others are static. ``view``: the result may share the first array's memory.
    ``reference``: the same on ndarrays, for operations among known cells."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[str, ...]
    view: bool
    reference: Callable[..., Any]

    @property
    def static(self) -> tuple[str, ...]:
        """The parameters that hold no arrays."""
        return tuple(p for p in inspect.signature(self.function).parameters if p not in self.arrays)


API: dict[str, ApiFunction] = {}
