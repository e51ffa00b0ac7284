"""How many cores are used, and engines on them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tenferro.naming import check_count

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine
    from tenferro.runtime import Configuration


def threads(n: int) -> AbstractContextManager[None]:
    """``with tn.threads(n):`` jitted and eager operations of this thread use up to ``n`` cores. Results are the same at
    any number. ValueError for a number that is no thread count."""
    from tenferro.engines.cpu.threads import threads as scope  # loads native code, which importing tenferro must not

    return scope(n)


def cpu_engines(n: int) -> list[Engine]:
    """``n`` CPU engines, ``cpu:0`` to ``cpu:{n-1}``, registered with the default runtime where they were not.

    They share the memory of the process, and its cores in equal parts. Programs prepared before are prepared again when
    next called. A smaller ``n`` than before gives the first of them; none is taken away, for arrays may lie there, and
    each keeps its part of the cores. ValueError for less than one, TypeError for what is no int."""
    check_count("cpu_engines", "n", n, 1)
    from tenferro.runtime import default_runtime

    runtime = default_runtime()
    present = {e.id: e for e in runtime.engines()}
    wanted = [f"cpu:{k}" for k in range(n)]

    def add(configuration: Configuration) -> None:
        from tenferro.engines.cpu.engine import CpuEngine
        from tenferro.engines.cpu.threads import default_count

        configuration.engines += [CpuEngine(k) for k, name in enumerate(wanted) if name not in present]
        engines = [e for e in configuration.engines if isinstance(e, CpuEngine)]
        for engine in engines:
            engine.share = max(1, default_count() // len(engines))

    if any(name not in present for name in wanted):
        runtime.reconfigure(add)
    return [runtime.engine(name) for name in wanted]
