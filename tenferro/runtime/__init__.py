"""Engines, prepared programs and runs: the layer below ``@jit``, for those who hold engines themselves."""

from tenferro.engines.engine import Engine as Engine, Executable as Executable, RunResult as RunResult
from tenferro.runtime.cache import CacheStats as CacheStats, PreparedCache as PreparedCache
from tenferro.runtime.default import default_runtime as default_runtime, list_engines as list_engines
from tenferro.runtime.prepared import (
    EngineTarget as EngineTarget,
    InputType as InputType,
    Prepared as Prepared,
    signature_of as signature_of,
    target_of as target_of,
)
from tenferro.runtime.runtime import Runtime as Runtime, RuntimeBuilder as RuntimeBuilder
