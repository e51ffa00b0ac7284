"""CuPy: the case's own function, which NumPy's protocols hand to CuPy's kernels one operation at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer


class CupyPeer(Peer):
    name = "cupy"

    def __init__(self, threads: int) -> None:
        import cupy

        self._cupy: Any = cupy

    def version(self) -> str:
        return str(self._cupy.__version__)

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        arrays = [self._cupy.asarray(x) for x in inputs]
        stream = self._cupy.cuda.get_current_stream()

        def call() -> Any:
            result = case.function(*arrays)
            stream.synchronize()
            return result

        return {"eager": call}

    def array(self, result: Any, dtype: np.dtype[Any]) -> Array:
        found: Array = self._cupy.asnumpy(result)
        return found
