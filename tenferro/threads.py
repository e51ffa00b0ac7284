"""How many cores are used, and engines on them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine


def threads(n: int) -> AbstractContextManager[None]:
    """``with tn.threads(n):`` jitted and eager operations of this thread use up to ``n`` cores. Results are the same at
    any number. ValueError for a number that is no thread count."""
    from tenferro.engines.cpu.threads import threads as scope  # loads native code, which importing tenferro must not

    return scope(n)


def cpu_engines(n: int) -> list[Engine]:
    """``n`` CPU engines, ``cpu:0`` to ``cpu:{n-1}``, registered with the default runtime where they were not.

    They share the cores and the memory of the process. Programs prepared before are prepared again when next called."""
    if n < 1:
        raise ValueError(f"cpu_engines: n is {n}; at least 1 is needed")
    from tenferro.runtime import default_runtime

    runtime = default_runtime()
    present = {e.id: e for e in runtime.engines()}
    wanted = [f"cpu:{k}" for k in range(n)]

    def add(engines: list[Engine]) -> None:
        from tenferro.engines.cpu.engine import CpuEngine

        engines += [CpuEngine(k) for k, name in enumerate(wanted) if name not in present]

    if any(name not in present for name in wanted):
        runtime.reconfigure(add)
    return [runtime.engine(name) for name in wanted]
