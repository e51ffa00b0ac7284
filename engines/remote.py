"""Arrays that lie where the process's own code cannot read them: what the runtime may know of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tenferro.engines.recording import fetched
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine


@dataclass(frozen=True, slots=True)
class RemoteFlags:
    """What ``ndarray.flags`` tells, as far as it applies. ``num`` tells remote arrays from all others."""

    num: int = -1
    aligned: bool = True
    writeable: bool = False


class RemoteArray:
    """Elements in the memory of ``engine``, which alone can bring them to the host (``Engine.fetch``)."""

    __slots__ = ("__weakref__", "dtype", "engine", "shape", "strides")
    flags: ClassVar[RemoteFlags] = RemoteFlags()

    def __init__(self, engine: Engine, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.engine = engine
        self.shape = shape
        self.strides = strides
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def tobytes(self) -> bytes:
        return self.numpy().tobytes()

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, when everything before it on the engine is done."""
        found: np.ndarray[Any, Any] = fetched(self.engine, self, "read on the host")
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(
                f"{type(self).__name__}: copy=False for elements on {self.engine.id}; a copy is needed to read them"
            )
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype.name}{list(self.shape)} on {self.engine.id}>"
