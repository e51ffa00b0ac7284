"""tenferro: the case's own function under ``jit``; NumPy arrays in and out, or arrays that stay on a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import tenferro as tn
from benchmarks.case import ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer
from benchmarks.words import tenferro_words


def form_of(case: ArrayCase) -> Callable[..., Any]:
    """The case's function as tenferro runs it."""
    return case.function if case.written is None else case.written(tenferro_words())


class TenferroPeer(Peer):
    name = "tenferro"

    def __init__(self, threads: int) -> None:
        if os.environ.get("TENFERRO_NUM_THREADS") != str(threads):  # the command line sets it
            # Entered for good: a benchmark process uses one thread count. Calls go the long way in such a scope.
            tn.threads(threads).__enter__()

    def version(self) -> str:
        return str(tn.__version__)

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        compiled = tn.jit(form_of(case))
        return {"jit": lambda: compiled(*inputs)}


class TenferroCudaPeer(TenferroPeer):
    """On ``cuda:0``. Each call waits until the GPU is done."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.engine = tn.cuda_engine(0)  # ImportError without CuPy

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        compiled = tn.jit(form_of(case))
        arrays = [tn.asarray(x, engine=self.engine) for x in inputs]

        def call() -> Any:
            result = compiled(*arrays)
            self.engine.synchronize()
            return result

        return {"jit": call}
