"""numba: explicit loops and array expressions, whichever is faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs
from benchmarks.peers import numba_forms
from benchmarks.peers.peer import Call, Peer


class NumbaPeer(Peer):
    name = "numba"

    def __init__(self, threads: int) -> None:
        numba.set_num_threads(threads)

    def version(self) -> str:
        return str(numba.__version__)

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        def bind(name: str) -> Call:
            function = getattr(numba_forms, name)
            return lambda: function(*inputs)

        base = {
            "x_plus_xT": "x_plus_xt",
            "mlp_1": "mlp",
            "mlp_256": "mlp",
            "batched_3x3": "batched",
            "batched_4x4": "batched",
        }.get(case.name, case.name)
        names = {"loops": f"{base}_loops", "arrays": f"{base}_arrays", "serial": f"{base}_serial"}
        return {form: bind(name) for form, name in names.items() if hasattr(numba_forms, name)}

    def array(self, result: Any, dtype: np.dtype[Any]) -> Array:
        # A float32 scalar leaves a compiled function as a Python float.
        return np.asarray(result, dtype) if isinstance(result, float) else np.asarray(result)
