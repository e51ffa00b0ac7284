"""The runtime that ``@jit`` uses, and the engines of this machine."""

from __future__ import annotations

from collections.abc import Callable

from tenferro.engines.engine import Engine
from tenferro.runtime.cache import Limits
from tenferro.runtime.runtime import Runtime
from tenferro.runtime.snapshot import Snapshot
from tenferro.tracer.config import config
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.forking import Renewed


def _reference_engine() -> Engine:
    from tenferro.engines.reference import ReferenceEngine

    return ReferenceEngine()


def _default_engines() -> list[Engine]:
    """The CPU engines; the reference engine where it is asked for, or where the processor is below the baseline."""
    if config().engine == "reference":
        return [_reference_engine()]
    from tenferro.engines.cpu import native
    from tenferro.engines.cpu.engine import CpuEngine
    from tenferro.engines.cpu.threads import default_count

    try:
        native.module()  # refuses processors below the baseline, and foreign CPython or NumPy layouts
    except LoweringError:
        return [_reference_engine()]
    count = config().cpu_engines
    share = None if count == 1 else max(1, default_count() // count)
    return [CpuEngine(k, share=share) for k in range(count)]


class DefaultRuntime(Runtime):
    """GPUs and the reference engine are engines of it from when they are first named: looking for GPUs takes CuPy,
    and a second, and few programs ask for the reference."""

    def __init__(self, snapshot: Snapshot, limits: Limits) -> None:
        super().__init__(snapshot, limits)
        self._adding = Renewed()

    def engine(self, engine_id: str, asked: str = "runtime") -> Engine:
        """As ``Runtime.engine``. ImportError and ConfigurationError say why there is no such GPU."""
        if self.snapshot.find(engine_id) is None:
            if engine_id.startswith("cuda:") and engine_id[5:].isdecimal():
                self.add_gpu(int(engine_id[5:]))
            elif engine_id == "reference:0":
                self._add(engine_id, _reference_engine)
        return super().engine(engine_id, asked)

    def add_gpu(self, number: int) -> None:
        """Register GPU ``number``, unless another thread has done so meanwhile."""
        from tenferro.engines.cuda.engine import CudaEngine

        self._add(f"cuda:{number}", lambda: CudaEngine(number))

    def _add(self, engine_id: str, make: Callable[[], Engine]) -> None:
        with self._adding.lock:
            if self.snapshot.find(engine_id) is None:
                made = make()
                self.reconfigure(lambda c: c.register_engine(made))


class _Default(Renewed):
    """The one runtime of the process; threads that ask at the same time get the same."""

    __slots__ = ("runtime",)

    def __init__(self) -> None:
        super().__init__()
        self.runtime: DefaultRuntime | None = None


_default = _Default()


def default_runtime() -> DefaultRuntime:
    """The process's runtime, with one engine or ``TENFERRO_CPU_ENGINES``; made at the first call."""
    if _default.runtime is None:
        with _default.lock:
            if _default.runtime is None:
                builder = Runtime.builder()
                for engine in _default_engines():
                    builder.register_engine(engine)
                made = builder.build(DefaultRuntime)
                assert isinstance(made, DefaultRuntime)
                _default.runtime = made
    return _default.runtime


def list_engines() -> list[str]:
    """The names of the engines that the default runtime has, such as ``["cpu:0"]``."""
    return [e.id for e in default_runtime().engines()]
