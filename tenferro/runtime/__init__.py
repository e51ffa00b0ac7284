"""Engines, prepared programs and runs: the layer below ``@jit``, for those who hold engines themselves."""

from tenferro.engines.engine import Engine as Engine, Executable as Executable, RunResult as RunResult
from tenferro.runtime.cache import CacheStats as CacheStats, Limits as Limits, PreparedCache as PreparedCache
from tenferro.runtime.default import default_runtime as default_runtime, list_engines as list_engines
from tenferro.runtime.extensions import (
    ExtensionModule as ExtensionModule,
    Family as Family,
    FamilyCache as FamilyCache,
    Lent as Lent,
)
from tenferro.runtime.options import Policy as Policy, PrepareOptions as PrepareOptions
from tenferro.runtime.prepared import (
    EngineTarget as EngineTarget,
    InputType as InputType,
    Prepared as Prepared,
    signature_of as signature_of,
    target_of as target_of,
)
from tenferro.runtime.runtime import Runtime as Runtime, RuntimeBuilder as RuntimeBuilder
from tenferro.runtime.schedule import (
    BarrierNode as BarrierNode,
    CollectiveNode as CollectiveNode,
    OperationNode as OperationNode,
    Schedule as Schedule,
    TransferNode as TransferNode,
)
from tenferro.runtime.snapshot import Configuration as Configuration, Snapshot as Snapshot
from tenferro.runtime.specialization import (
    Known as Known,
    Need as Need,
    Requirement as Requirement,
    Signature as Signature,
    Specializer as Specializer,
)
from tenferro.runtime.transfers import Endpoint as Endpoint, Transfer as Transfer, TransferProvider as TransferProvider
from tenferro.tracer.program import ArrayType as ArrayType
