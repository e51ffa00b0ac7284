"""tenferro: the case's own function under ``jit``, NumPy arrays in and out."""

from __future__ import annotations

from collections.abc import Mapping

import tenferro as tn
from benchmarks.case import ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer


class TenferroPeer(Peer):
    name = "tenferro"

    def __init__(self, threads: int) -> None:
        # Entered for good: a benchmark process uses one thread count.
        tn.threads(threads).__enter__()

    def version(self) -> str:
        return str(tn.__version__)

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        compiled = tn.jit(case.function)
        return {"jit": lambda: compiled(*inputs)}
