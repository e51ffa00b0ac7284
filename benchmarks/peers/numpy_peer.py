"""NumPy: the case's own function."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.case import ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer


class NumpyPeer(Peer):
    name = "numpy"

    def __init__(self, threads: int) -> None: ...

    def version(self) -> str:
        return np.__version__

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        return {"numpy": lambda: case.function(*inputs)}
