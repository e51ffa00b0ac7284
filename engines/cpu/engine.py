"""The CPU engine: plans in, executables out that run fused kernels of machine code on every core.

A run looks up the plan bound to its inputs' layouts (``binding``) and carries out its actions: enter native code once
per block, which makes its outputs in the pool, call NumPy at seams. Kernels start at code generation level 0 and are
compiled again at level 2 when they have run for about five times their compile time.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

import numpy as np

from tenferro.engines.cpu import binding, loop_kernel, loops, memory, native, products, select, threads
from tenferro.engines.cpu.actions import Recheck, Select
from tenferro.engines.cpu.any_tail import brought
from tenferro.engines.cpu.binding import Binder, BoundPlan, Call, Drop, Enter, Place, Tail, ViewOf
from tenferro.engines.cpu.direct import UnsealedBinder
from tenferro.engines.cpu.donating import bind_donated
from tenferro.engines.cpu.kernel import FAST, GOOD, TIER_FACTOR, KernelTable
from tenferro.engines.cpu.layout import Strided
from tenferro.engines.cpu.native_entry import WARNING_BIT
from tenferro.engines.cpu.recorded import Recorded
from tenferro.engines.cpu.selections import note_extents
from tenferro.engines.cpu.stretches import stretches
from tenferro.engines.cpu.toolchain import Target
from tenferro.engines.engine import NO_EXECUTORS, Engine, Executable, Executor, Replay, RunResult, Shortcut, executed
from tenferro.engines.events import Driver, WorkerDriver
from tenferro.engines.recording import recorders
from tenferro.engines.reference import ReferenceExecutable, ReportedError, evaluated
from tenferro.engines.values import input_sizes, layout_sizes, scalar_array
from tenferro.lowering.donation import Donation
from tenferro.lowering.exec_program import Instruction, Slot
from tenferro.lowering.plan import Plan, Stretch
from tenferro.tracer.bodies import Body, asked
from tenferro.tracer.config import config
from tenferro.tracer.dims import Environment, Leaf
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.op import Control, ControlKind
from tenferro.tracer.ops.control import LOOPS
from tenferro.tracer.program import DimScalar, Literal

Array = np.ndarray[Any, Any]

BOUND_PLANS = 256
"""Layouts kept per program; the oldest one goes."""
GOOD_AT_ONCE_SECONDS = 4e-3
"""Estimated seconds of one run on one thread from which on level 2 comes first: its longer compilation (10 to 50 ms,
once per machine) pays back within a few calls."""
GOOD_AT_ONCE_PER_OPERATION = 10e-6
"""The same for each operation of the program: level 2 takes some 70 µs longer for each, and saves up to two runs' time
in each run, so that it pays within four (3,000 operations of 4,096 elements: 0.1 s of compiling instead of 0.3)."""
UNKNOWN_TAILS = 64


class CpuEngine(Engine):
    """Cores of the process. ``share``: how many threads a kernel may use at most; all by default. ``target`` overrides
    the machine's own instruction set and ``tier`` the setting of that name (for tests of vector widths and of code
    generation levels)."""

    def __init__(
        self, number: int = 0, target: Target | None = None, tier: str | None = None, share: int | None = None
    ) -> None:
        self.id = f"cpu:{number}"
        self.share = share
        self._driver = WorkerDriver(f"tenferro-{self.id}")
        self.target = target
        self.tier = tier if tier is not None else config().tier

    def compile(self, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> Executable:
        return CpuExecutable(plan, self.target, self.tier, self.share, executors, self.id)

    @property
    def runs_on_caller(self) -> bool:
        return True

    def driver(self) -> Driver:
        return self._driver


class CpuExecutable(Executable):
    """A plan with its kernels, and the bindings to the layouts seen so far."""

    offers_shortcuts = True
    records_launches = True

    def __init__(
        self,
        plan: Plan,
        target: Target | None = None,
        tier: str = "auto",
        share: int | None = None,
        executors: Mapping[str, Executor] = NO_EXECUTORS,
        engine_id: str = "cpu:0",
        table: KernelTable | None = None,
    ) -> None:
        """``table``: of the program that has the plan as a body, whose kernels stand there too."""
        self.plan = plan
        self.executors = executors
        self.share = share
        self.table = KernelTable(target, plan.program.name) if table is None else table
        self._bound: OrderedDict[Any, BoundPlan] = OrderedDict()
        self.tier = tier
        self._enter = native.module().enter
        self._engine_id = engine_id
        self._bodies: dict[Body, CpuExecutable] = {}
        self._recorded = Recorded(engine_id, plan.program.name)

    def run(self, inputs: Sequence[Array | int], donation: Donation | None = None) -> RunResult:
        key = _layout_key(inputs, donation)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bind(key, inputs, donation)
        if bound.seconds_left <= 0.0:
            return self._run_bound(bound, inputs)
        start = time.perf_counter()
        result = self._run_bound(bound, inputs)
        bound.seconds = time.perf_counter() - start
        bound.seconds_left -= bound.seconds
        if bound.seconds_left <= 0.0:
            self._improved(key, bound, inputs, donation)
        return result

    def _improved(
        self, key: Any, bound: BoundPlan, inputs: Sequence[Array | int], donation: Donation | None
    ) -> BoundPlan:
        """The plan at the better level, from now on: a new object, since another thread may be running the old one."""
        made = self._bound[key] = self._bound_at(GOOD, inputs, donation)
        made.paths = bound.paths
        return made

    def run_donated(self, inputs: Sequence[Array | int], donation: Donation) -> RunResult:
        return self.run(inputs, donation)

    def refused(self, inputs: Sequence[Array | int], donation: Donation) -> Mapping[int, str]:
        return self.bound(inputs, donation).refused

    def shortcut(
        self, inputs: Sequence[Array | int], is_spent: bool = False, donation: Donation | None = None
    ) -> Shortcut | None:
        from tenferro.engines.cpu import offers  # not before the second call

        key = _layout_key(inputs, donation)
        bound = self._bound.get(key)
        if bound is not None and is_spent and bound.seconds_left > 0.0:
            bound = self._improved(key, bound, inputs, donation)
        return None if bound is None else offers.shortcut(self, bound, _layout_key(inputs))

    def shortcut_of_sizes(self, layouts: Sequence[Any], is_spent: bool = False) -> Shortcut | None:
        from tenferro.engines.cpu import offers

        return offers.shortcut_of_sizes(self, layouts, is_spent)

    def at_layouts(self, layouts: Sequence[Any], level: int) -> UnsealedBinder:
        """A binder of the plan for inputs of these layouts, whose numbers may be more than ints."""
        places = {}
        for k, (declared, x) in enumerate(zip(self.plan.program.inputs, layouts, strict=True)):
            places[declared.slot.index] = Place(k, Strided(0, *x) if isinstance(x, tuple) else Strided(0, (), ()))
        binder = UnsealedBinder(self.plan, self.table, layout_sizes(layouts), places, len(layouts), level)
        binder.good_from = self._good_from
        return binder

    def _run_bound(self, bound: BoundPlan, inputs: Sequence[Array | int]) -> RunResult:
        """Run a plan that was bound to just these layouts."""
        only = bound.only
        if only is not None:
            given = [inputs[p] for p in only.positions]
            if recorders:
                made = self._recorded.enter(only.block, only.address, threads.count(self.share), given)
            else:
                made = self._enter(only.address, threads.count(self.share), *given)
            if made is None:
                raise memory.block_error(only.block)
            if not only.made:  # all outputs lie in donated inputs
                made = (made,)
            if made[0] != native.CLEAN:
                self._report(made[0], inputs)
            if bound.lent:
                return RunResult([made[k] if k >= 0 else inputs[-1 - k] for k in bound.picks])  # type: ignore[misc]
            return RunResult([made[k] for k in bound.picks])
        arrays: list[Any] = [*inputs, *[None] * (bound.positions - len(inputs))]
        runtime: dict[Leaf, int] = {}
        effects: list[tuple[Any, ...]] = []
        last = self._act(bound, arrays, runtime, inputs, effects)
        return RunResult([self._output(o, arrays, inputs, runtime) for o in last.outputs], runtime)

    # Binding.

    def _bound_at(
        self, level: int, inputs: Sequence[Array | int], donation: Donation | None, good_from: float = math.inf
    ) -> BoundPlan:
        """The plan on these inputs' layouts, at a code generation level, or at the better one for a run of
        ``good_from`` seconds."""

        def binder(plan: Plan) -> Binder:
            made = self._binder(plan, inputs, level)
            made.good_from = good_from
            return made

        return binder(self.plan).bind(0) if donation is None else bind_donated(self.plan, donation, inputs, binder)

    def _binder(self, plan: Plan, inputs: Sequence[Array | int], level: int) -> Binder:
        places = {}
        for k, (declared, x) in enumerate(zip(self.plan.program.inputs, inputs, strict=True)):
            strided = Strided(0, (), ()) if isinstance(x, int) else Strided(0, x.shape, x.strides)
            places[declared.slot.index] = Place(k, strided)
        return Binder(plan, self.table, input_sizes(inputs), places, len(inputs), level)

    @property
    def _good_from(self) -> float:
        """Estimated seconds of a run from which on level 2 comes first."""
        if self.tier != "auto":
            return math.inf
        return max(GOOD_AT_ONCE_SECONDS, len(self.plan.program.instructions) * GOOD_AT_ONCE_PER_OPERATION)

    def _bind(self, key: Any, inputs: Sequence[Array | int], donation: Donation | None = None) -> BoundPlan:
        bound = self._bound_at(GOOD if self.tier == "2" else FAST, inputs, donation, self._good_from)
        if bound.level == FAST and self.tier == "auto":
            bound.seconds_left = TIER_FACTOR * self.compile_seconds
        self._bound[key] = bound
        while len(self._bound) > BOUND_PLANS:
            self._bound.popitem(last=False)
        return bound

    def bound_plans(self) -> list[BoundPlan]:
        """The plans bound so far."""
        return list(self._bound.values())

    def plan_of_layouts(self, layouts: Sequence[Any]) -> BoundPlan | None:
        """The plan bound to inputs of these layouts that are not given up."""
        return self._bound.get(tuple(layouts))

    # Running.

    def _act(
        self,
        bound: BoundPlan,
        arrays: list[Any],
        runtime: dict[Leaf, int],
        inputs: Sequence[Array | int],
        effects: list[tuple[Any, ...]],
    ) -> BoundPlan:
        """Carry out a bound plan and the tails that its run-time extents lead to; returns the last one. ``effects``
        collects the results of ordered operations."""
        actions: Sequence[binding.Action] = bound.actions
        first = bound
        path: list[tuple[int, ...]] = []
        while True:
            for action in actions:
                if type(action) is Enter:
                    found = self._enter_in_turn(action, arrays)
                    if found != native.CLEAN:
                        self._report(found, inputs, effects)
                elif recorders:
                    with self._recorded.seam(action, arrays):
                        self._act_in_python(action, arrays, runtime, effects)
                else:
                    self._act_in_python(action, arrays, runtime, effects)
            if bound.tail is None:
                if path:
                    first.note(tuple(path))
                return bound
            extents = tuple([arrays[position].shape[axis] for _, position, axis in bound.tail.leaves])
            path.append(extents)
            bound, actions = self._follow(bound.tail, extents, runtime)
            arrays += [None] * (bound.positions - len(arrays))

    def _enter_in_turn(self, action: Enter, arrays: list[Any]) -> int:
        """Run a block among other actions and return its latch. Nothing but ``arrays`` holds on to what it made."""
        found, *made = self._enter_block(action, [arrays[p] for p in action.positions])
        for position, array in zip(action.made, made, strict=True):
            arrays[position] = array
        return int(found)

    def _enter_block(self, action: Enter, given: Sequence[Array]) -> tuple[Any, ...]:
        """The latch and the block's outputs."""
        count = threads.count(self.share)
        if not recorders:
            return memory.enter(action.block, action.address, count, *given)
        return memory.checked(action.block, self._recorded.enter(action.block, action.address, count, given))

    def _act_in_python(
        self, action: binding.Action, arrays: list[Any], runtime: dict[Leaf, int], effects: list[tuple[Any, ...]]
    ) -> None:
        match action:
            case ViewOf():
                arrays[action.position] = _view(arrays[action.source], action)
            case Call():
                self._call(action, arrays, runtime, effects)
            case Drop(positions=positions):
                for p in positions:
                    arrays[p] = None
            case Select(source=source, mask=mask, output=output):
                arrays[output] = select.mask_select(action, arrays[source], arrays[mask])
            case Recheck():
                program = self.plan.program
                ReferenceExecutable(program, self.executors).run(arrays[: len(program.inputs)])
            case Enter():
                raise AssertionError("handled by the caller")
            case _:
                assert_never(action)

    def _call(self, action: Call, arrays: list[Any], runtime: dict[Leaf, int], effects: list[tuple[Any, ...]]) -> None:
        instruction = action.instruction
        env = {**input_sizes(arrays[: len(self.plan.program.inputs)]), **runtime}
        operands = []
        for source in action.sources:
            match source:
                case int(position):
                    operands.append(arrays[position])
                case Literal() | DimScalar():
                    operands.append(scalar_array(source, env))
                case Slot():
                    raise AssertionError("slots have positions")
        params = {k: evaluated(v, env) for k, v in instruction.params.items()}
        if isinstance(instruction.op.form, Control):  # its divisions are judged as the caller asks
            results = self._controlled(instruction.op.form.kind, operands, params, arrays)
        else:
            with np.errstate(all="ignore"):
                results = executed(instruction, operands, params, self.executors, env)
        if instruction.op.is_ordered(instruction.params):
            effects.append(results)
        for position, one, kind in zip(action.outputs, results, instruction.types, strict=True):
            arrays[position] = np.require(np.asarray(one, kind.dtype), requirements=["C", "O", "W"])

    def _controlled(
        self, kind: ControlKind, operands: Sequence[Any], params: Mapping[str, Any], arrays: Sequence[Any]
    ) -> tuple[Any, ...]:
        """A loop or a choice: native turns where its bodies allow them, else turn by turn."""
        found: loops.Found | None = None
        fused = self._fused(kind, operands, params)
        if fused is not None:
            found = fused
        elif kind == "scan":
            found = loops.scan(self._unit(params["body"]), operands, params, self.share)
        elif kind == "while":
            units = self._unit(params["body"]), self._unit(asked(params["condition"]))
            found = loops.while_loop(*units, operands, params, self.share)
        if found is None:
            return LOOPS[kind](self._run_body, operands, params)
        if found.latch != native.CLEAN:
            self._report(found.latch, arrays[: len(self.plan.program.inputs)])
        return found.results

    def _fused(self, kind: ControlKind, operands: Sequence[Any], params: Mapping[str, Any]) -> loops.Found | None:
        """A loop whose bodies are elementwise, as one kernel; None for others and for loops of nothing."""
        if kind == "cond":
            return None
        kernel = self.table.loop(kind, params)
        if kernel is None or any(not np.size(x) for x in operands[: params["carry"]]):
            return None
        if kind == "while":
            return loops.Found(*loop_kernel.while_loop(kernel, operands, self.share))
        if not params["length"]:
            return None
        return loops.Found(*loop_kernel.scan(kernel, operands, params["length"], params["reverse"], self.share))

    def is_one_kernel(self, instruction: Instruction) -> bool:
        form = instruction.op.form
        if not isinstance(form, Control) or form.kind == "cond":
            return False
        return self.table.loop(form.kind, instruction.params) is not None

    def _unit(self, body: Body) -> CpuExecutable:
        """A body made executable. What is run many times is compiled for speed at once."""
        unit = self._bodies.get(body)
        if unit is None:
            plan, table = self.table.body_plan(body), self.table
            tier = "2" if self.tier == "auto" else self.tier
            made = CpuExecutable(plan, None, tier, self.share, self.executors, self._engine_id, table)
            unit = self._bodies.setdefault(body, made)
        return unit

    def bound(self, inputs: Sequence[Array | int], donation: Donation | None = None) -> BoundPlan:
        """The plan bound to these inputs' layouts."""
        key = _layout_key(inputs, donation)
        return self._bound.get(key) or self._bind(key, inputs, donation)

    def _run_body(self, body: Body, inputs: Sequence[Any]) -> list[Array]:
        unit = self._unit(body)
        ints = [i.kind == "int" for i in unit.plan.program.inputs]
        return unit.run([int(x) if is_int else np.asarray(x) for x, is_int in zip(inputs, ints, strict=True)]).outputs

    def _follow(
        self, tail: Tail, extents: tuple[int, ...], runtime: dict[Leaf, int]
    ) -> tuple[BoundPlan, Sequence[binding.Action]]:
        """The rest under the extents that were measured: its binding, and what to do."""
        note_extents(tail, extents, runtime)
        found = tail.bound.get(extents)
        if found is None and tail.bound and not recorders and (served := brought(tail, extents)) is not None:
            return served
        if found is None:
            if len(tail.bound) >= UNKNOWN_TAILS:
                tail.bound.pop(next(iter(tail.bound)))
            found = tail.bound[extents] = tail.bind(extents)
        return found, found.actions

    def _output(self, source: Any, arrays: list[Any], inputs: Sequence[Array | int], runtime: dict[Leaf, int]) -> Array:
        match source:
            case int(position):
                found: Array = arrays[position]
                return found if isinstance(found, np.ndarray) else np.asarray(found)
            case Literal() | DimScalar():
                return scalar_array(source, {**input_sizes(inputs), **runtime})
            case _:
                raise AssertionError(f"output {source}")

    def _report(self, latch: int, inputs: Sequence[Array | int], effects: Sequence[tuple[Any, ...]] = ()) -> None:
        """Say what a kernel found. The reference engine runs the same program on the same inputs: it raises or warns
        with the op, the argument, the value and the user's line. ``effects``: what ordered operations gave so far."""
        if latch & WARNING_BIT and np.geterr()["divide"] == "ignore":
            return
        with suppress(ReportedError):
            ReferenceExecutable(self.plan.program, Replay(self.executors, effects)).run(inputs)
        if not latch & WARNING_BIT:
            raise LoweringError(f"a kernel recorded {latch:#x}, which the reference engine does not find")

    # Looking inside.

    def segments(self, inputs: Sequence[Array | int], runtime: Environment) -> Sequence[Stretch]:
        key = _layout_key(inputs)
        bound = self._bound.get(key) or self._bind(key, inputs)
        found = [bound]
        while bound.tail is not None:
            extents = tuple([runtime[leaf] for leaf, _, _ in bound.tail.leaves])
            bound = bound.tail.bound.get(extents) or bound.tail.bind(extents)
            found.append(bound)
        return stretches(self.plan, [action for one in found for action in one.actions])

    def kernel_texts(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for name, kernel in self.table.named():
            level = max(kernel.libraries, default=FAST)
            texts = {"llvm": kernel.text(level)}
            if kernel.libraries:
                texts["asm"] = kernel.libraries[level].asm()
            found[_fresh(name, found)] = texts
        for loop in self.table.fused_loops():
            for lanes, compiled in loop.libraries.items():
                name = f"{loop.loop.name}, {lanes} lanes" if lanes > 1 else loop.loop.name
                found[_fresh(name, found)] = {"llvm": loop.texts[lanes], "asm": compiled.asm()}
        for entry in self.table.products:
            shared = products.library(entry, self.table.target)
            found[str(entry)] = {"llvm": shared.text, "asm": shared.asm()}
        return found

    @property
    def compile_seconds(self) -> float:
        return sum(k.compile_seconds for k in self.table.compiled())

    @property
    def kernels(self) -> int:
        return len(self.table.compiled())

    @property
    def kernel_bytes(self) -> int:
        return sum(k.code_bytes for k in self.table.compiled())


def _fresh(name: str, known: Container[str]) -> str:
    while name in known:
        name += "'"
    return name


def _layout_key(inputs: Sequence[Array | int], donation: Donation | None = None) -> tuple[Any, ...]:
    layouts = tuple([x if type(x) is int else (x.shape, x.strides) for x in inputs])  # type: ignore[union-attr]
    return layouts if donation is None else (donation, layouts)


def _view(base: Array, action: ViewOf) -> Array:
    """An array on the memory of ``base``; writeable where that is."""
    interface = {
        "data": (base.ctypes.data + action.offset, not base.flags.writeable),
        "shape": action.shape,
        "strides": action.strides,
        "typestr": action.dtype.str,
        "version": 3,
    }
    return np.asarray(_Memory(interface, base))


class _Memory:
    """Hands an array interface to NumPy and keeps the owner of the memory alive."""

    def __init__(self, interface: dict[str, Any], owner: Array) -> None:
        self.__array_interface__ = interface
        self.owner = owner
