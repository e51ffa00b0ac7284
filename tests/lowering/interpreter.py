"""Runs a Plan with NumPy straight from the definitions in ``lowering/region.py`` and ``plan.py``: an oracle for fusion.

Every node is evaluated over its whole level. Freed slots are taken away, and a stolen base is overwritten with rubbish
as soon as its update has run, so that a wrong lifetime shows as a wrong result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.lowering.exec_program import Slot
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, ViewStep
from tenferro.lowering.region import Apply, Gather, Iota, Load, Reduce, Region, Uniform, Valid, ViewStep as RegionView
from tenferro.lowering.tree import tree_moments, tree_product, tree_sum
from tenferro.tracer.dims import DimExpr, Leaf, evaluate, evaluate_shape
from tenferro.tracer.op import Library
from tenferro.tracer.ops import layout
from tenferro.tracer.program import DimScalar, Literal

VIEWS = {"reshape": layout.reshape, "transpose": layout.transpose, "slice": layout.slice_,
         "broadcast_to": layout.broadcast_to}  # fmt: skip


class Run:
    def __init__(self, plan: Plan, inputs: Sequence[Any]) -> None:
        self.plan = plan
        self.slots: dict[int, Any] = {}
        self.env: dict[Leaf, int] = {}
        self.stolen: set[int] = set()  # bases whose memory lives on in their updates
        for k, (i, given) in enumerate(zip(plan.program.inputs, inputs, strict=True)):
            array = np.asarray(given, i.type.dtype)
            self.slots[i.slot.index] = array
            self.env.update((Leaf("extent", k, a), n) for a, n in enumerate(array.shape))
            if i.kind == "int":
                self.env[Leaf("int", k)] = int(array)
        with np.errstate(all="ignore"):
            for step, dead in zip(plan.steps, plan.frees, strict=True):
                self.step(step)
                for slot in dead:
                    if slot in self.stolen:
                        self.stolen.remove(slot)
                    else:
                        del self.slots[slot]

    def outputs(self) -> list[Any]:
        return [self.source(o) for o in self.plan.program.outputs]

    def source(self, source: Any) -> Any:
        match source:
            case Slot(index=index):
                return self.slots[index]
            case Literal(value=value, dtype=dtype):
                return np.asarray(value, dtype)
            case DimScalar(expr=expr, dtype=dtype):
                return np.asarray(evaluate(expr, self.env), dtype)

    def params(self, params: Any) -> dict[str, Any]:
        return {k: self.value(v) for k, v in params.items()}

    def value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.value(v) for v in value)
        try:
            return evaluate(value, self.env) if isinstance(value, DimExpr) else value
        except KeyError:
            return value

    def step(self, step: Any) -> None:
        match step:
            case RegionStep(region=region):
                self.region(region)
            case AdoptStep(base=base, target=target, steal=steal):
                array = self.slots[base.index]
                self.slots[target.index] = array if steal else np.array(array, order="C")
                if steal:
                    assert array.flags.c_contiguous and array.flags.writeable
                    del self.slots[base.index]
                    self.stolen.add(base.index)
            case ViewStep(instruction=i):
                (out,) = i.outputs
                self.slots[out.index] = i.op.reference(self.source(i.inputs[0]), **self.params(i.params))
            case CallStep(instruction=i):
                result = i.op.reference(*[self.source(s) for s in i.inputs], **self.params(i.params))
                results = result if isinstance(result, tuple) else (result,)
                for slot, array in zip(i.outputs, results, strict=True):
                    self.slots[slot.index] = np.array(array, order="C")
                if isinstance(i.op.form, Library):
                    for output, axis in i.op.form.runtime_extents:
                        leaf: Any = i.types[output].shape[axis].terms[0][0][0].leaf
                        self.env[leaf] = self.slots[i.outputs[output].index].shape[axis]

    def viewed(self, array: Any, views: Sequence[RegionView]) -> Any:
        for v in views:
            if v.kind == "slice" and not array.ndim:
                continue  # NumPy would make a scalar of it
            array = VIEWS[v.kind].reference(array, **self.params(v.params))
        return array

    def region(self, region: Region) -> None:
        space = evaluate_shape(region.space, self.env)
        kept = tuple(1 if a in region.row_axes else n for a, n in enumerate(space))
        outer = region.outer()
        values: list[Any] = []
        for k, node in enumerate(region.nodes):
            level = kept if region.row_axes and outer[k] else space
            value = self.node(region, node, values, level)
            assert value.dtype == node.dtype, (node, value.dtype)
            values.append(np.broadcast_to(value, level))
        for store in region.stores:
            value = values[store.node]
            if store.views:
                target = self.viewed(self.slots[store.slot], store.views)
                assert target.size == value.size and np.shares_memory(target, self.slots[store.slot]) | (not value.size)
                target[...] = value.reshape(target.shape)
            else:
                shape = evaluate_shape(self.plan.program.slot_types()[store.slot].shape, self.env)
                self.slots[store.slot] = np.array(value.reshape(shape), order="C")

    def node(self, region: Region, node: Any, values: list[Any], level: tuple[int, ...]) -> Any:
        match node:
            case Uniform(operand=operand):
                return self.source(operand)
            case Load():
                return self.load(node, level)
            case Valid(windows=windows):
                return self.valid(windows, level)
            case Iota(axis=axis, offset=offset, step=step):
                index = np.arange(level[axis], dtype=np.int64) * step + self.value(offset)
                return np.broadcast_to(index.reshape([-1 if a == axis else 1 for a in range(len(level))]), level)
            case Gather(axis=axis, index=index, index_rank=rank):
                return self.gather(node, np.broadcast_to(values[index], level), axis, rank)
            case Apply(op=op, params=params, args=args, dtype=dtype):
                return np.asarray(op.reference(*[values[a] for a in args], **params)).astype(dtype, copy=False)
            case Reduce(kind=kind, arg=arg):
                return reduce(values[arg], kind, region.row_axes, node.dtype).reshape(level)

    def valid(self, windows: Any, level: tuple[int, ...]) -> Any:
        found = np.ones(level, bool)
        for w in windows:
            index = np.arange(level[w.axis]) * w.step + self.value(w.offset)
            inside = (index >= 0) & (index < self.value(w.size))
            found &= inside.reshape([-1 if a == w.axis else 1 for a in range(len(level))])
        return found

    def load(self, node: Load, level: tuple[int, ...]) -> Any:
        array = self.viewed(self.slots[node.access.slot], node.access.views)
        assert array.ndim == len(level), (node, array.shape, level)
        ok = self.valid(node.windows, level)
        for w in node.windows:
            assert array.shape[w.axis] == self.value(w.size), (node, array.shape)
            index = np.arange(level[w.axis]) * w.step + self.value(w.offset)
            safe = np.where((index >= 0) & (index < array.shape[w.axis]), index, 0)
            if not array.shape[w.axis]:
                return np.zeros(level, array.dtype)
            array = np.take(array, safe, axis=w.axis)
        for n, m in zip(array.shape, level, strict=True):
            assert n in (1, m), (node, array.shape, level)
        return np.where(ok, np.broadcast_to(array, level), np.zeros((), array.dtype))

    def gather(self, node: Gather, index: Any, axis: int, rank: int) -> Any:
        array = self.viewed(self.slots[node.access.slot], node.access.views)
        others = [a for a in range(index.ndim) if not axis <= a < axis + rank]
        where = [np.arange(index.shape[a]).reshape([-1 if b == a else 1 for b in range(index.ndim)]) for a in others]
        safe = np.where(index < 0, index + array.shape[axis], index)
        return array[(*where[:axis], safe, *where[axis:])]


def reduce(x: Any, kind: str, axes: tuple[int, ...], dtype: Any) -> Any:
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose(*kept, *axes).reshape([*(x.shape[a] for a in kept), int(np.prod([x.shape[a] for a in axes]))])
    rows = np.ascontiguousarray(rows)
    match kind:
        case "sum" if x.dtype.kind == "c":
            return (tree_sum(rows.real) + 1j * tree_sum(rows.imag)).astype(dtype)
        case "sum" if x.dtype.kind == "f":
            return tree_sum(rows)
        case "sum":
            return rows.sum(-1, dtype=dtype)
        case "product" if x.dtype.kind in "fc":
            return tree_product(rows)
        case "product":
            return rows.prod(-1, dtype=dtype)
        case "moments" if x.dtype.kind == "c":
            return tree_moments(rows.real) + tree_moments(rows.imag)
        case "moments":
            return tree_moments(rows)
        case "max":
            return rows.max(-1)
        case "min":
            return rows.min(-1)
        case "argmax":
            return rows.argmax(-1)
        case "argmin":
            return rows.argmin(-1)
    raise AssertionError(kind)
