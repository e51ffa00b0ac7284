"""What an engine is: one place that compiles plans and runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

import numpy as np

from tenferro.engines.errors import ConfigurationError, ProviderContractError
from tenferro.engines.events import Driver, ImmediateDriver
from tenferro.lowering.checks import called
from tenferro.lowering.donation import Donation
from tenferro.lowering.exec_program import Instruction
from tenferro.lowering.plan import Plan, Stretch
from tenferro.tracer import switches
from tenferro.tracer.dims import Environment, Leaf, evaluate_shape
from tenferro.tracer.lines import at
from tenferro.tracer.op import Extension, Host
from tenferro.tracer.ops import library
from tenferro.tracer.program import ArrayType
from tenferro.tracer.records import dataclass

Capability = Literal["elementwise", "reduction", "indexing", "dot_general", "layout", "library"]
CAPABILITIES: frozenset[Capability] = frozenset(
    ("elementwise", "reduction", "indexing", "dot_general", "layout", "library")
)
Executor: TypeAlias = Callable[..., Any]
"""An extension family's operation on one engine: ``(*arrays, **params) → array, or a tuple of them``."""
NO_EXECUTORS: Mapping[str, Executor] = {}


class Replay(dict[str, Executor]):
    """Executors for running a program again to see what went wrong in it: ordered operations give the results that they
    had, in order, and zeros where the first run had not come to them. Their effects are not repeated."""

    def __init__(self, executors: Mapping[str, Executor], results: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(executors)
        self._left = list(results[::-1])

    def results(self, instruction: Instruction, sizes: Environment) -> tuple[Any, ...]:
        """Of the next ordered instruction."""
        if self._left:
            return self._left.pop()
        return tuple(np.zeros(evaluate_shape(t.shape, sizes), t.dtype) for t in instruction.types)


@dataclass(slots=True)
class RunResult:
    """Outputs in program order, and the run-time extents that the run measured.

    An output that is a view of an input shares that input's memory; every other one is fresh, C-ordered and writeable.
    Sizes and literals among the outputs come back as rank-0 arrays."""

    outputs: list[np.ndarray[Any, Any]]
    runtime: dict[Leaf, int] = field(default_factory=dict)


ArrayFrom: TypeAlias = tuple[Literal["made", "view", "input"], int]
"""An array of a run: the block's output, the view or the program's input of this number."""


@dataclass(frozen=True, slots=True)
class ViewFrom:
    """A view of an array: byte offset from its first element, and strides in bytes."""

    of: ArrayFrom
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A bound block that is all of a program, but for views.

    block: its template's words; these and the numbers of views may remember how they were computed. places: input → its
    place among the block's arrays. outputs: for each of the program's outputs what it is. ``made``: the byte offsets in
    the block of the arrays that it makes. calls: as often it may be entered before Python is to look again, −1 for any
    number.
    threads: that a run may use outside of scopes; ``share``: at most so many in one, 0 for any number.
    ``chain``: the byte offset of the first operation where ``block`` is a chain's frame, else 0; ``held``: words of it
    that are to name the values of inputs, by these."""

    owner: object
    block: Sequence[int]
    threads: int
    places: Mapping[int, int]
    outputs: tuple[ArrayFrom, ...]
    made: tuple[int, ...]
    views: tuple[ViewFrom, ...] = ()
    calls: int = -1
    share: int = 0
    chain: int = 0
    held: tuple[tuple[int, int], ...] = ()


class Executable(ABC):
    """A compiled plan. Thread-safe; holds no array of a run."""

    @abstractmethod
    def run(self, inputs: Sequence[np.ndarray[Any, Any] | int]) -> RunResult:
        """Run on arrays (exact ``ndarray``, native byte order, aligned) and ints, one per program input, in order.

        Raises BoundsError, DivisionError (or warns, per ``np.errstate``) and MemoryLimitError with the user's line."""

    def run_donated(self, inputs: Sequence[np.ndarray[Any, Any] | int], donation: Donation) -> RunResult:
        """``run``, where inputs are given up: an output that lies in the memory of one is that very array."""
        return self.run(inputs)

    def refused(self, inputs: Sequence[np.ndarray[Any, Any] | int], donation: Donation) -> Mapping[int, str]:
        """For each input that is given up and yet not used, by its number, why."""
        return dict.fromkeys(donation.inputs, "this engine puts no result there")

    offers_shortcuts = False
    """Whether ``shortcut`` may give anything."""
    records_launches = False
    """Whether it tells profiles of each launch; else they record runs as a whole."""

    def shortcut(
        self, inputs: Sequence[np.ndarray[Any, Any] | int], is_spent: bool = False, donation: Donation | None = None
    ) -> Shortcut | None:
        """What native calls may run for inputs of these layouts, which have been run before; None where Python is
        needed. ``is_spent``: the last one's ``calls`` are used up. ``donation``: what such calls give up."""
        return None

    def shortcut_of_sizes(self, layouts: Sequence[Any], is_spent: bool = False) -> Shortcut | None:
        """``shortcut`` in numbers that remember how they were computed: ``layouts`` has an int for each int among the
        inputs, the shape and the strides of each array. Raises whatever such numbers cannot do."""
        return None

    @abstractmethod
    def kernel_texts(self) -> dict[str, dict[str, str]]:
        """Per region name, the texts by stage, as far as they exist: ``"llvm"``, ``"asm"``, ``"cuda"``."""

    def segments(self, inputs: Sequence[Any], runtime: Environment) -> Sequence[Stretch] | None:
        """How a run on these inputs went that measured these run-time extents; None where the plan itself tells."""
        return None

    def is_one_kernel(self, instruction: Instruction) -> bool:
        """Whether a loop of the plan, or of a body in it, is one kernel that keeps what a turn makes in registers."""
        return False

    def notes(self) -> Sequence[str]:
        """What else is to be known of how the kernels are run, a line each."""
        return ()

    @property
    @abstractmethod
    def kernels(self) -> int:
        """Compiled kernels so far, layout variants included."""

    @property
    @abstractmethod
    def kernel_bytes(self) -> int:
        """Bytes of machine code of them."""

    @property
    def compile_seconds(self) -> float:
        """Time spent making machine code so far."""
        return 0.0


def executed(
    instruction: Instruction,
    operands: Sequence[Any],
    params: Mapping[str, Any],
    executors: Mapping[str, Executor],
    sizes: Environment,
) -> tuple[Any, ...]:
    """An instruction by its family's executor where there is one, else by its row's NumPy function.

    ProviderContractError where a family's results are not of the number, dtypes and shapes that it declares: kernels
    would read beyond them. A result on the memory of an operand, which NumPy's own functions may give too, is copied:
    kernels may write to it."""
    form = instruction.op.form
    if isinstance(executors, Replay) and instruction.op.is_ordered(instruction.params):
        return executors.results(instruction, sizes)
    if isinstance(form, Extension):
        result = _of_family(instruction, form.family, operands, params, executors)
    elif isinstance(form, Host):
        result = _of_host(instruction, operands, params)
    else:
        result = called(instruction, operands, params)
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(instruction.types):
        raise _broken_contract(instruction, f"{len(results)} results", f"{len(instruction.types)} are declared")
    if isinstance(form, Extension):
        for found, kind in zip(results, instruction.types, strict=True):
            _check_result(instruction, found, kind, sizes)
    if isinstance(form, Extension) or instruction.op is library.numpy_call:
        results = tuple(_apart(found, [*operands, *results[:k]]) for k, found in enumerate(results))
    return results


def _of_family(
    instruction: Instruction,
    family: str,
    operands: Sequence[Any],
    params: Mapping[str, Any],
    executors: Mapping[str, Executor],
) -> Any:
    """What a family's executor gives, or its reference; operands on the host are lent read-only. What these raise
    stays as it is, with a note of the line."""
    execute = executors.get(family, instruction.op.reference)
    try:
        result = execute(*map(_lent, operands), **params)
    except Exception as error:
        note = f"{family}: raised by its {'executor' if family in executors else 'reference'}{at(instruction.line)}"
        if isinstance(error, ValueError) and "read-only" in str(error):
            note += "; operands are lent read-only, a copy of one can be written"
        if note not in getattr(error, "__notes__", ()):  # one exception may be raised many times
            error.add_note(note)
        raise
    if result is None:
        raise _broken_contract(instruction, "a result that is None", "an array, or a tuple of them, is declared")
    return result


def _of_host(instruction: Instruction, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """What a function of the user's gives; what it raises stays as it is, with a note of the line that asked for it."""
    try:
        return instruction.op.reference(*map(_lent, operands), **params)
    except Exception as error:
        note = f"{params['call']}: called by {instruction.op.name}{at(instruction.line)}"
        if note not in getattr(error, "__notes__", ()):  # one exception may be raised many times
            error.add_note(note)
        raise


def _lent(operand: Any) -> Any:
    """An operand that the program goes on using, or the caller's own argument: it may be read, not written."""
    if not isinstance(operand, np.ndarray):
        return operand
    view = operand.view()
    view.flags.writeable = False
    return view


def _apart(found: Any, others: Sequence[Any]) -> Any:
    hosts = [x for x in others if isinstance(x, np.ndarray)]
    shares = isinstance(found, np.ndarray) and any(np.may_share_memory(found, x) for x in hosts)
    return found.copy() if shares else found


def _check_result(instruction: Instruction, found: Any, kind: ArrayType, sizes: Environment) -> None:
    dtype, shape = (found.dtype, found.shape) if hasattr(found, "dtype") else (np.asarray(found).dtype, np.shape(found))
    needed = evaluate_shape(kind.shape, sizes)
    if dtype != kind.dtype:
        raise _broken_contract(instruction, f"a result of dtype {dtype}", f"{kind.dtype} is declared")
    if tuple(shape) != needed:
        raise _broken_contract(instruction, f"a result of shape {tuple(shape)}", f"{needed} is declared")


def _broken_contract(instruction: Instruction, found: str, needed: str) -> ProviderContractError:
    return ProviderContractError(f"{instruction.op.name}: {found}; {needed}{at(instruction.line)}")


class Engine(ABC):
    """One place to run: ``cpu:0``, ``reference:0``, ``cuda:0``. It is an event domain of its own."""

    id: str
    hardware: str = "cpu"
    storage_classes: tuple[str, ...] = ("host",)
    """Kinds of memory that it reaches; the first is where results lie."""
    capabilities: frozenset[Capability] = CAPABILITIES
    _broken: str = ""

    @property
    def broken(self) -> str:
        """Why it runs nothing any more; empty while it is whole."""
        return self._broken

    @broken.setter
    def broken(self, why: str) -> None:
        self._broken = why
        switches.forget()

    @abstractmethod
    def compile(self, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> Executable:
        """Make a plan executable here; cheap, since kernels are compiled when first needed. ``executors``: those of the
        extension families in the plan, by family."""

    @property
    def is_executable(self) -> bool:
        """False for an engine that only prepares, such as one for a machine elsewhere."""
        return True

    @property
    def runs_on_caller(self) -> bool:
        """Whether launches may happen on the caller's thread, where nothing is to run beside them."""
        return False

    def driver(self) -> Driver:
        """How launches happen when several engines take part in a run."""
        return ImmediateDriver()

    def accepts(self, kind: ArrayType) -> bool:
        """Whether a caller's array of this type can be used here as it is."""
        return "host" in self.storage_classes

    def holds(self, value: Any) -> bool:
        """Whether a value lies in this engine's memory."""
        return isinstance(value, np.ndarray) and "host" in self.storage_classes

    @property
    def is_host(self) -> bool:
        """Whether its results lie in the process's own memory."""
        return self.storage_classes[0] == "host"

    @property
    def carries(self) -> bool:
        """Whether ``receive`` and ``fetch`` bring values to its memory and back."""
        return False

    def synchronize(self) -> None:  # noqa: B027  (engines of the host are done when they return)
        """Wait until everything that it was given is done. EngineFailure where some of it failed."""

    def limit_memory(self, size: int) -> None:
        """Hold at most ``size`` bytes of memory of its own; 0 for no limit. ConfigurationError where it has none."""
        raise ConfigurationError(f"limit_memory: engine {self.id!r} has no memory of its own")

    def receive(self, value: np.ndarray[Any, Any]) -> Any:
        """A host array in this engine's memory: itself where that is the process's."""
        return value

    def fetch(self, value: Any) -> np.ndarray[Any, Any]:
        """A value of this engine's memory on the host: itself where it is there."""
        found: np.ndarray[Any, Any] = value
        return found

    def __repr__(self) -> str:
        return f"<engine {self.id}{', broken' if self.broken else ''}>"
