"""What a peer is: a library that can run the array cases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs

Call: TypeAlias = Callable[[], Any]


class Peer(ABC):
    """Made only where the library can be imported; ``threads`` is what it may use."""

    name: str

    @abstractmethod
    def __init__(self, threads: int) -> None: ...

    @abstractmethod
    def version(self) -> str:
        """The library's version."""

    @abstractmethod
    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        """The ways in which this library writes the case, by name; the fastest is timed. Each call does all the work
        and waits for it. Empty where the library cannot express it."""

    def array(self, result: Any, dtype: np.dtype[Any]) -> Array:
        """A call's result as a NumPy array; ``dtype`` is what the case asks for."""
        return np.asarray(result)
