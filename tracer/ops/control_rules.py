"""Derivatives and batches of control rows: transformations of their bodies.

Those are made of the other rows, so what transforms is imported when a rule is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.dims import Extent
from tenferro.tracer.op import Tangents
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation


def jvp_scan(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    from tenferro.tracer.transform import loops

    return loops.jvp_scan(b, operation, tangents)


def transpose_scan(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    from tenferro.tracer.transform import loops

    return loops.transpose_scan(b, operation, cotangents, is_linear)


def batch_scan(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    from tenferro.tracer.transform import loops

    return loops.batch_scan(b, operation, batched, size)


def jvp_while(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    from tenferro.tracer.transform import while_loops

    return while_loops.jvp_while(b, operation, tangents)


def batch_while(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    from tenferro.tracer.transform import while_loops

    return while_loops.batch_while(b, operation, batched, size)


def jvp_cond(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    from tenferro.tracer.transform import branches

    return branches.jvp_cond(b, operation, tangents)


def transpose_cond(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    from tenferro.tracer.transform import branches

    return branches.transpose_cond(b, operation, cotangents, is_linear)


def batch_cond(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    from tenferro.tracer.transform import branches

    return branches.batch_cond(b, operation, batched, size)
