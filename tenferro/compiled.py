"""A traced function made ready to run: a call's inputs in, its results as the function's own pytree out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal as OneOf

import numpy as np

from tenferro import nans
from tenferro.donations import Donated, Donations, memory_of
from tenferro.engines.engine import Engine, RunResult, Shortcut
from tenferro.engines.errors import StaleError
from tenferro.engines.recording import received
from tenferro.engines.remote import RemoteArray
from tenferro.engines.values import layout_sizes
from tenferro.guards import Predicate, compile_guards, environment, holds
from tenferro.runtime import Prepared, PrepareOptions, Runtime, signature_of, target_of
from tenferro.too_large import error_for
from tenferro.tracer import tree
from tenferro.tracer.capture_guards import Captures
from tenferro.tracer.dims import Leaf, evaluate
from tenferro.tracer.errors import TenferroError
from tenferro.tracer.program import SemanticProgram, Value
from tenferro.tracer.records import dataclass, replace
from tenferro.tracer.result import TraceResult
from tenferro.tracer.signature import AnyArray, as_native
from tenferro.tracer.switches import is_paused
from tenferro.tracer.trace import is_tenferro_array

if TYPE_CHECKING:
    from tenferro.engines.cpu.entries import Entry
    from tenferro.lowered import Lowered
    from tenferro.lowering.plan import Plan

FEW_LAYOUTS, FEW_TRIES, MORE_LAYOUTS = 3, 6, 1000
"""Layouts that are met before calls of any sizes are learnt: as many as a script with a set for training and one for
testing has, and one more. Ranges of sizes that are bound each in its own way are learnt one by one; after so many, and
after a try that gave nothing, more layouts have to be met before the next."""
Wrap = Callable[[AnyArray, Engine, bool], Any]
Kind = OneOf["array", "scalar", "number"]


@dataclass(frozen=True, slots=True)
class Result:
    """Where a leaf of the result comes from: output ``value`` of the run, as an array, a NumPy scalar or a Python
    number; the caller's own input ``value``, the size ``value``, or the Python object ``value`` itself."""

    source: OneOf["output", "input", "size", "static"]
    value: Any
    kind: Kind = "array"


def _results(program: SemanticProgram, traced: TraceResult) -> tuple[Result, ...]:
    inputs = {i.value.id: k for k, i in enumerate(program.inputs) if i.kind != "constant"}
    # A donated input that was written is handed back as the caller's own array.
    written = {(program.outputs[position], -1 - index): index for index, position in traced.writes}
    first: dict[tuple[Any, int], int] = {}
    found = []
    value: Any  # an output's index, for arrays
    for source, value in traced.out_leaves:
        if source == "size" or source == "static":
            found.append(Result(source, value))
            continue
        operand, alias = program.outputs[value], program.aliases[value]
        if isinstance(operand, Value) and operand.id in inputs and alias < 0:
            found.append(Result("input", inputs[operand.id]))
        elif (operand, alias) in written:
            found.append(Result("input", written[operand, alias]))
        else:
            # One variable returned twice is one array; equal values of two variables are two.
            found.append(Result("output", first.setdefault((operand, alias), value), source))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Late:
    """The inputs behind the arguments: captured arrays as they are now, and what the trace itself made.

    ``originals`` are the objects that the captures hold; ``wrapped``: a tn.Array is among them."""

    inputs: tuple[Any, ...]
    originals: tuple[Any, ...]
    wrapped: bool


NO_LATE = Late((), (), False)


class Compiled:
    """One program of a jitted function. Thread-safe; holds no array of a call but those that the trace made itself."""

    def __init__(
        self,
        traced: TraceResult,
        captures: Captures,
        runtime: Runtime,
        engines: tuple[Engine, ...],
        wrap: Wrap,
        keep_lines: bool,
        places: tuple[str, ...],
        wrapped: bool,
    ) -> None:
        """``places``: for each input the engine in whose memory it lies, empty for the host's. ``wrapped``: results are
        to be tn.Arrays, as a rule."""
        program = traced.program if keep_lines else _without_lines(traced.program)
        self.program = program
        self.captures = captures
        self.runtime = runtime
        self.engines = engines
        self.used = 0
        self.layouts = 0  # that were met since calls of any sizes were learnt last
        self.sized: list[Entry] = []  # entries for calls of any sizes
        self._tries = 0
        self.number = 0  # of the trace that made it
        self.guard: Predicate = compile_guards(program.guards)
        self.has_late = not captures.is_empty or bool(traced.constants)
        self._wrap = wrap
        arguments = len(program.inputs) - len(traced.captured) - len(traced.constants)
        constants = dict(traced.constants)
        self._places = places
        self._keeps = wrapped  # results are kept where they are made
        self._late = [
            (constants.get(k), p.value.type.dtype, p.value.type.rank, p.name, self._places[k])
            for k, p in enumerate(program.inputs)
            if k >= arguments
        ]
        is_on_host = not traced.constants and not any(place for *_, place in self._late)
        self._plain_late = [(dtype, rank) for _, dtype, rank, *_ in self._late] if is_on_host else None
        self._treedef = traced.out_treedef
        self._writes = traced.writes
        self._leaves = _results(program, traced)
        self._is_single = (
            self._treedef == tree.LEAF and not self._writes and [r.source for r in self._leaves] == ["output"]
        )
        is_host = all(e.is_host for e in engines)
        self._is_plain = self._is_single and is_host and self._leaves[0].kind == "array"
        self._is_direct = is_host
        self._donations: Donations | None = None
        self.offer(())
        self.prepared: Prepared = self.prepare()

    def offer(self, donated: Sequence[int]) -> None:
        """Calls give up these inputs, beside those that the function writes."""
        returned = {r.value for r in self._leaves if r.source == "input"}
        found = Donations(self.program, self._writes, donated, returned)
        self._donations = found if found.writes or found.offers else None

    def prepare(self) -> Prepared:
        """Prepare the program under the runtime's present configuration, for the engines that bear their names now."""
        signature = tuple(
            replace(s, place=place) for s, place in zip(signature_of(self.program), self._places, strict=True)
        )
        while True:
            engines = tuple([self.runtime.engine(e.id) for e in self.engines])
            options = PrepareOptions(results=self._results(engines))
            try:
                prepared = self.runtime.prepare(self.program, signature, [target_of(e) for e in engines], options)
            except StaleError:  # reconfigured meanwhile
                continue
            self.engines, self.prepared = engines, prepared
            return prepared

    @property
    def is_direct(self) -> bool:
        """Whether native calls may run it at all."""
        return self._is_direct and self.prepared.flat is not None and self.prepared.flat.offers_shortcuts

    @property
    def results(self) -> tuple[tree.TreeDef, tuple[Result, ...]]:
        """The structure of what a call returns, and where its leaves come from."""
        return self._treedef, self._leaves

    @property
    def treedef(self) -> tree.TreeDef:
        """The structure of the result."""
        return self._treedef

    @property
    def leaves(self) -> tuple[Result, ...] | None:
        """Where the leaves of the result come from; None where there is more to a result, or to the inputs, than the
        caller's arrays and numbers and what a run makes."""
        if self._writes or self._keeps or any(constant is not None for constant, *_ in self._late):
            return None
        return None if any(r.source == "input" for r in self._leaves) else self._leaves

    def is_due_for_sizes(self) -> bool:
        """Whether to try for native calls of any sizes, at a call of a layout that was not met before: at the third
        since the last such try, and when those of an entry are used up."""
        self.layouts += 1
        return self.layouts >= FEW_LAYOUTS or any(entry.is_spent for entry in self.sized)

    def tried_sizes(self, entry: Entry | None, kept: list[Entry]) -> None:
        """Such a try gave this entry, or none, beside those that are kept."""
        self._tries += 1
        self.sized = kept if entry is None else [*kept, entry]
        self.layouts = 0 if entry is not None and self._tries <= FEW_TRIES else FEW_LAYOUTS - MORE_LAYOUTS

    def constants(self) -> list[Any]:
        """For each input behind the arguments the array that the trace itself made; None for a captured one."""
        return [constant for constant, *_ in self._late]

    def shortcut(self, inputs: Sequence[Any], is_spent: bool) -> Shortcut | None:
        """What native calls may run for inputs of these layouts."""
        flat = self.prepared.flat
        if flat is None or self.prepared.epoch != self.runtime.epoch or any(e.broken for e in self.engines):
            return None
        if self._donations is None:
            return flat.shortcut(inputs, is_spent)
        found = flat.shortcut(inputs, is_spent, self._donations.of_call(inputs, inputs))
        in_place = found is not None and all(found.outputs[o] == ("input", k) for k, o in self._writes)
        return found if in_place else None

    def donated(self, shortcut: Shortcut) -> tuple[int, ...]:
        """The inputs that a shortcut writes to."""
        if self._donations is None:
            return ()
        lent = {number for kind, number in shortcut.outputs if kind == "input"}
        return tuple([k for k in (*dict(self._writes), *self._donations.offers) if k in lent])

    def shortcut_of_sizes(self, layouts: Sequence[Any], is_spent: bool) -> Shortcut | None:
        """``shortcut`` for any sizes that the program serves, which are conditions of the numbers in ``layouts``."""
        env = layout_sizes(layouts)
        for k, declared in enumerate(self.program.inputs):
            fixed = [(Leaf("extent", k, a), n) for a, n in enumerate(declared.value.type.shape) if isinstance(n, int)]
            if declared.kind != "int" and any(env[leaf] != n for leaf, n in fixed):
                return None
        if not all(holds(guard, env) for guard in self.program.guards):
            return None
        flat = self.prepared.flat
        if flat is None or self.prepared.epoch != self.runtime.epoch or any(e.broken for e in self.engines):
            return None
        # What may be written in place depends on the addresses of a call.
        return None if self._donations is not None else flat.shortcut_of_sizes(layouts, is_spent)

    def _results(self, engines: Sequence[Engine]) -> str:
        """Where results are to lie: tn.Arrays on the first engine, NumPy arrays on the host. Engines of the host share
        its memory."""
        if all(e.is_host for e in engines):
            return ""
        return engines[0].id if self._keeps else next((e.id for e in engines if e.is_host), "")

    @property
    def compile_ms(self) -> float:
        """Native compile time so far; 0 on an engine that compiles nothing."""
        return 1e3 * sum(u.compile_seconds for u in self.prepared.executables())

    def late(self, receiver: Any) -> Late | None:
        """The inputs behind the arguments; None where what was captured is no longer what was traced."""
        if not self.has_late:
            return NO_LATE
        values = self.captures.read(receiver)
        if values is None:
            return None
        if self._are_plain(values):
            found = tuple(values)
            return Late(found, found, False)
        captured = iter(values)
        inputs, originals = [], []
        wrapped = False
        for constant, dtype, rank, name, place in self._late:
            original = next(captured) if constant is None else constant
            value: Any = original
            if type(value) is not np.ndarray:
                if is_tenferro_array(value):
                    wrapped, value = True, value._data
                elif type(value) is not np.memmap:
                    return None
            if value.ndim != rank or place_of(value) != place:
                return None
            if value.dtype is not dtype or not value.flags.aligned or (not place and type(value) is not np.ndarray):
                if value.dtype != dtype and value.dtype.newbyteorder("=") != dtype:
                    return None
                value = as_native(value, name, self.program.name)
            inputs.append(value)
            originals.append(original)
        return Late(tuple(inputs), tuple(originals), wrapped)

    def _are_plain(self, values: Sequence[Any]) -> bool:
        """Whether the captured arrays are inputs as they stand, and the only ones: as a rule they are."""
        expected = self._plain_late
        if expected is None:
            return False
        for value, (dtype, rank) in zip(values, expected, strict=True):
            if type(value) is not np.ndarray or value.dtype is not dtype or value.ndim != rank:
                return False
            if not value.flags.aligned:
                return False
        return True

    def run(self, inputs: Sequence[Any], originals: Sequence[Any], wrapped: bool) -> Any:
        """Run and rebuild the result. ``originals``: the callers' objects, one per input; an input among the results is
        handed back as it came."""
        prepared = self.prepared
        if prepared.epoch != self.runtime.epoch:
            prepared = self.prepare()
        donation = None if self._donations is None else self._donations.of_call(inputs, originals)
        try:
            if is_paused() and nans.is_on():
                result = nans.run(self, inputs)
            else:
                result = self.runtime.run_checked(self.engines, prepared, inputs, donation)
        except StaleError:
            if self.runtime.epoch == prepared.epoch:  # of a runtime that the function itself uses
                raise
            return self.run(inputs, originals, wrapped)
        except (OverflowError, ValueError) as error:
            if isinstance(error, TenferroError):
                raise
            found = error_for(self.program, environment(self.program, inputs))  # it was Python's or NumPy's own
            if found is None:
                raise
            raise found from None
        if self._is_single:
            out = result.outputs[0]
            return out if self._is_plain and not wrapped else self._output(out, self._leaves[0].kind, wrapped)
        if self._donations is not None:
            self._donations.complete(result, inputs, originals)
        return self._rebuild(result, inputs, originals, wrapped)

    def _rebuild(self, result: RunResult, inputs: Sequence[Any], originals: Sequence[Any], wrapped: bool) -> Any:
        made: dict[int, Any] = {}  # by output, and −1 − input: what is returned twice is one object
        leaves: list[Any] = []
        for leaf in self._leaves:
            value = leaf.value
            match leaf.source:
                case "static":
                    leaves.append(value)
                case "size":
                    leaves.append(evaluate(value, environment(self.program, inputs) | result.runtime))
                case "input":
                    if -1 - value not in made:
                        made[-1 - value] = self._input(originals[value], wrapped)
                    leaves.append(made[-1 - value])
                case "output":
                    if value not in made:
                        made[value] = self._output(result.outputs[value], leaf.kind, wrapped)
                    leaves.append(made[value])
        return tree.unflatten(self._treedef, leaves)

    def _output(self, out: AnyArray, kind: Kind, wrapped: bool) -> Any:
        if wrapped and kind != "number":
            engine = self.engines[0]
            held = out if engine.holds(out) else received(engine, np.asarray(out), "host", "result")
            return self._wrap(held, engine, kind == "scalar")
        if not isinstance(out, np.ndarray):
            out = out.numpy()
        if kind == "number":
            return out.item()
        return out[()] if kind == "scalar" else out

    def _input(self, original: Any, wrapped: bool) -> Any:
        """An input that is a result: the caller's own object, on the engine where the other results are."""
        engine = self.engines[0]
        if wrapped and isinstance(original, np.ndarray):
            return self._wrap(received(engine, original, "host", "result"), engine, False)
        if is_tenferro_array(original) and original.device != engine.id:
            memory = original._data
            held = memory if engine.holds(memory) else received(engine, original._host, "host", "result")
            return self._wrap(held, engine, original._scalar)
        return original

    def lowered(self, inputs: Sequence[Any], originals: Sequence[Any]) -> Lowered:
        """The stages, for the sizes of these inputs. ``originals`` as for ``run``."""
        from tenferro.lowered import Lowered

        prepared = self.prepared

        def run(of: Prepared) -> RunResult:
            return self.runtime.run_checked(self.engines, of, inputs)

        donate = None if self._donations is None else partial(self._donated, inputs, originals)
        return Lowered(prepared, environment(self.program, inputs), run, donate)

    def _donated(self, inputs: Sequence[Any], originals: Sequence[Any]) -> tuple[Plan | None, tuple[Donated, ...]]:
        """The plan that uses what a call on these inputs gives up, None where it uses nothing; what becomes of each
        donated argument."""
        from tenferro.lowering.donation import donated as plan_of

        known, flat = self._donations, self.prepared.flat
        assert known is not None
        refused: dict[int, str] = known.reasons(inputs, originals)
        donation = known.of_call(inputs, originals)
        if donation is None or flat is None:
            given = {} if donation is None else dict.fromkeys(donation.inputs, "the program runs on several engines")
            return None, known.told({**given, **refused}, {})
        refused |= flat.refused(inputs, donation)
        for k in refused:
            donation = donation.without(k)
        (plan,) = [p for p in self.prepared.plans if p is not None]
        found = plan_of(plan, donation, environment(self.program, inputs))
        return found.plan, known.told(refused, {g.input: g.output for g in found.grants})


def _without_lines(program: SemanticProgram) -> SemanticProgram:
    return replace(program, operations=tuple(replace(o, line=None) for o in program.operations))


def place_of(value: Any) -> str:
    """The engine in whose memory an input lies; empty for the host's, and for a number."""
    memory = memory_of(value)
    return memory.engine.id if isinstance(memory, RemoteArray) else ""
