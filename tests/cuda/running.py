"""Plans whose regions run as CUDA texts on the CPU: what a CUDA engine does with a plan, on NumPy arrays.

``ShimExecutable`` runs a plan twice: once to see which kernels it needs (``kernels``), without computing any, and then
in earnest. Steps other than regions are computed by NumPy, products by the CPU engine: NumPy's have other bits on other
processors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import tenferro as tn
from tenferro.engines.cpu.layout import NeedsCopyError, Strided, apply_views
from tenferro.engines.cpu.slabs import copy_region
from tenferro.engines.cuda.launch import CELLS, LATCH, PARTS, Bound, Device, EmptyRowsError, KernelKey, bind_region
from tenferro.engines.cuda.params import Schedule
from tenferro.engines.cuda.prelude import KernelText
from tenferro.engines.reference import evaluated
from tenferro.lowering.checks import empty_error
from tenferro.lowering.exec_program import Instruction, Slot, Source
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, ViewStep
from tenferro.lowering.region import Access, Gather, Load, Region, Store, ViewStep as View
from tenferro.tracer import op
from tenferro.tracer.dims import DimExpr, Leaf, evaluate, evaluate_shape
from tenferro.tracer.program import DimScalar, Literal, Params
from tests.cuda.shim.compile import Shim

Array = np.ndarray[Any, Any]
CLEAN = (1 << 64) - 1
SMALL = Device(processors=1, threads=64)
"""Blocks of 64 threads: small enough to be quick as fibers, large enough to have two warps."""
SHIM = Shim()
_TEXTS: dict[KernelKey, KernelText] = {}
_product = tn.jit(lambda a, b: a @ b)


def text_of(key: KernelKey, region: Region) -> KernelText:
    if key not in _TEXTS:
        _TEXTS[key] = key.text(region)
    return _TEXTS[key]


def _alignment(address: int) -> int:
    return address & -address if address else 256


class Run:
    """One run of a plan. ``dry``: kernels are noted in ``kernels`` and not run."""

    def __init__(self, plan: Plan, inputs: Sequence[Any], device: Device, schedule: Schedule | None, dry: bool) -> None:
        self.plan, self.device, self.schedule, self.dry = plan, device, schedule, dry
        self.types = plan.program.slot_types()
        self.slots: dict[int, Array] = {}
        self.env: dict[Leaf, int] = {}
        self.latch = np.array([CLEAN], np.uint64)
        self.kernels: list[KernelText] = []
        self.bounds: list[Bound] = []
        self._virtual = -1
        for k, (declared, x) in enumerate(zip(plan.program.inputs, inputs, strict=True)):
            array = np.asarray(x, declared.type.dtype)
            self.slots[declared.slot.index] = array
            self.env.update((Leaf("extent", k, axis), n) for axis, n in enumerate(array.shape))
            if isinstance(x, int):
                self.env[Leaf("int", k)] = x

    def go(self) -> list[Array]:
        for step in self.plan.steps:
            match step:
                case RegionStep(region=region):
                    self._fresh_stores(region)
                    self._region(self._with_copies(region))
                case ViewStep(instruction=instruction) | CallStep(instruction=instruction):
                    self._instruction(instruction)
                case AdoptStep():
                    self._adopt(step)
        return [self._read(o) for o in self.plan.program.outputs]

    def _read(self, source: Source) -> Array:
        match source:
            case Slot(index=index):
                return self.slots[index]
            case Literal(value=value, dtype=dtype):
                return np.asarray(value, dtype)
            case DimScalar(expr=expr, dtype=dtype):
                return np.asarray(evaluate(expr, self.env), dtype)

    def _instruction(self, instruction: Instruction) -> None:
        params = {k: evaluated(v, self.env) for k, v in instruction.params.items()}
        with np.errstate(all="ignore"):
            run = _product if isinstance(instruction.op.form, op.Contraction) else instruction.op.reference
            result = run(*map(self._read, instruction.inputs), **params)
        results = result if isinstance(result, tuple) else (result,)
        for slot, kind, one in zip(instruction.outputs, instruction.types, results, strict=True):
            is_view = isinstance(instruction.op.form, op.View)
            self.slots[slot.index] = one if is_view else np.require(np.asarray(one, kind.dtype), requirements="C")
        if isinstance(instruction.op.form, op.Library):
            for output, axis in instruction.op.form.runtime_extents:
                expr = instruction.types[output].shape[axis]
                if isinstance(expr, DimExpr) and expr.terms[0][0][0].leaf is not None:
                    self.env[expr.terms[0][0][0].leaf] = self.slots[instruction.outputs[output].index].shape[axis]

    def _adopt(self, step: AdoptStep) -> None:
        base = self.slots[step.base.index]
        target = self.slots[step.target.index] = np.empty(base.shape, base.dtype)
        rank = base.ndim
        prototype = copy_region(base.dtype, rank)
        if 0 in base.shape:
            return
        views = (View("slice", Params(starts=(0,) * rank, steps=(1,) * rank, sizes=base.shape)),)
        node = dataclasses.replace(prototype.nodes[0], access=Access(step.base.index, views))
        stores = (Store(step.target.index, 0, views),)
        self._region(dataclasses.replace(prototype, space=base.shape, nodes=(node,), stores=stores))
        assert target.flags.c_contiguous

    def _fresh_stores(self, region: Region) -> None:
        for store in region.stores:
            if store.slot not in self.slots:
                kind = self.types[store.slot]
                self.slots[store.slot] = np.zeros(evaluate_shape(kind.shape, self.env), kind.dtype)

    def _with_copies(self, region: Region) -> Region:
        nodes = list(region.nodes)
        for k, node in enumerate(nodes):
            if isinstance(node, Load | Gather):
                nodes[k] = dataclasses.replace(node, access=self._strided_access(node.access))
        return dataclasses.replace(region, nodes=tuple(nodes))

    def _strided_access(self, access: Access) -> Access:
        while True:
            x = self.slots[access.slot]
            try:
                apply_views(Strided(0, x.shape, x.strides), access.views, self.env)
                return access
            except NeedsCopyError as error:
                seen = apply_views(Strided(0, x.shape, x.strides), access.views[: error.steps], self.env)
                shape = evaluate_shape(access.views[error.steps].params["shape"], self.env)
                address = x.ctypes.data + seen.offset
                copy = _array_at(address, seen, x.dtype).copy().reshape(shape)
                self.slots[self._virtual] = copy
                access = Access(self._virtual, access.views[error.steps + 1 :])
                self._virtual -= 1

    def _region(self, region: Region) -> None:
        slots = {k: Strided(0, x.shape, x.strides) for k, x in self.slots.items()}
        itemsizes = {k: x.itemsize for k, x in self.slots.items()}
        alignment = {k: _alignment(x.ctypes.data) for k, x in self.slots.items()}
        schedule = self.schedule if region.row_axes else None
        try:
            bound = bind_region(region, slots, itemsizes, alignment, self.env, self.device, schedule)
        except EmptyRowsError as error:
            raise empty_error(self.plan.program.instructions[error.operation]) from None
        if bound is None:
            return
        kernel = text_of(bound.key, region)
        self.kernels.append(kernel)
        self.bounds.append(bound)
        if not self.dry:
            self._launch(bound, kernel)

    def _launch(self, bound: Bound, kernel: KernelText) -> None:
        # Scratch memory holds anything before it is written.
        scratch = {PARTS: bound.parts, CELLS: bound.cells}
        buffers = {word: np.full(max(1, n), 0x5A5A5A5A5A5A5A5A, np.int64) for word, n in scratch.items()}
        for launch in bound.launches:
            words = list(launch.words)
            words[LATCH] = self.latch.ctypes.data
            for word, buffer in buffers.items():
                words[word] = buffer.ctypes.data
            for word, slot, offset in bound.pointers:
                words[word] = self.slots[slot].ctypes.data + offset
            SHIM.run(kernel, launch.entry, words, launch.grid, launch.block)


def _array_at(address: int, at: Strided, dtype: np.dtype[Any]) -> Array:
    interface = {"data": (address, True), "shape": at.shape, "strides": at.strides, "typestr": dtype.str, "version": 3}

    class Memory:
        __array_interface__ = interface

    return np.asarray(Memory())


def kernels_of(
    plan: Plan, inputs: Sequence[Any], device: Device = SMALL, schedule: Schedule | None = None
) -> Iterator[KernelText]:
    """The kernels that a run needs. Values are not computed, so that kernels behind a run-time extent may be missed."""
    run = Run(plan, inputs, device, schedule, dry=True)
    run.go()
    yield from run.kernels


def run_on_shim(
    plan: Plan, inputs: Sequence[Any], device: Device = SMALL, schedule: Schedule | None = None
) -> tuple[list[Array], int]:
    """The outputs and what is left in the latch."""
    run = Run(plan, inputs, device, schedule, dry=False)
    return run.go(), int(run.latch[0])
