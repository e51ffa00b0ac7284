"""What tracing did and why: records of traces in, a text and data for the reader out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenferro.guards import environment, holds, in_words
from tenferro.tracer import dims
from tenferro.tracer.api.record import API
from tenferro.tracer.lines import SourceLine, at
from tenferro.tracer.program import SemanticProgram, ShapeGuard
from tenferro.tracer.records import dataclass
from tenferro.tracer.signature import ArgumentLeaf, BoundCall

if TYPE_CHECKING:
    from tenferro.compiled import Compiled


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One trace: what made it necessary, the line of the user's code that the reason stands at (None where it is the
    call itself), and what it cost in milliseconds.

    ``trace_ms``: the function's Python code, run once on symbols, or the trace read from disk (``from_disk``).
    ``prepare_ms``: passes, fusion and the plan. ``compile_ms``: LLVM, so far; kernels are compiled when they are first
    run, and again, better, when it pays. ``guards``: what a call is checked for before the program serves it.
    ``unkept``: why the trace is not kept on disk for other processes; empty where it is, or where the cache is off."""

    number: int
    reason: str
    line: SourceLine | None
    trace_ms: float = 0.0
    prepare_ms: float = 0.0
    operations: int = 0
    guards: tuple[str, ...] = ()
    compile_ms: float = 0.0
    kernels: int = 0
    from_disk: bool = False
    unkept: str = ""

    def __str__(self) -> str:
        where = f" (at {self.line})" if self.line is not None else ""
        first = "trace from disk" if self.from_disk else "trace"
        cost = (
            f"{first} {self.trace_ms:.1f} ms, prepare {self.prepare_ms:.1f} ms, compile {self.compile_ms:.1f} ms so far"
        )
        made = f"{_counted(self.operations, 'operation')}, {_counted(self.kernels, 'kernel')}"
        lines = [f"{self.number}. {self.reason}{where}", f"   {cost}; {made}"]
        lines += [f"   holds while {g}" for g in self.guards]
        lines += [f"   not kept on disk: {self.unkept}"] if self.unkept else []
        return "\n".join(lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


LEGEND = (
    "(trace: your Python code, once, on symbols; prepare: passes and fusion; compile: LLVM, as kernels are first run)"
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """``f.explain()``: print it, or read ``traces``."""

    name: str
    traces: tuple[TraceRecord, ...]
    programs: int
    hits: int

    def __str__(self) -> str:
        loaded = sum(t.from_disk for t in self.traces)
        made = f"traces {len(self.traces) - loaded}" + (f", from disk {loaded}" if loaded else "")
        head = f"{self.name}: {made}, programs kept {self.programs}, calls served {self.hits}"
        return "\n".join([head, *map(str, self.traces), *([LEGEND] if self.traces else [])])

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Counts of one jitted function.

    programs: kept now, at most 64. compiles: traces ever made. hits: calls, and looks inside, that needed no trace.
    kernels, kernel_bytes: machine code of the kept programs, layout variants included. from_disk: programs that another
    process had traced."""

    programs: int
    compiles: int
    hits: int
    kernels: int
    kernel_bytes: int
    from_disk: int = 0


def _leaf_text(leaf: ArgumentLeaf) -> str:
    if leaf.sort == "static":
        return f"static {leaf.value!r}"
    if leaf.sort == "int":
        return "an int"
    if leaf.weak:
        return f"a Python {type(leaf.original).__name__}"
    return f"{leaf.value.dtype.name} of rank {leaf.value.ndim}"


def describe(call: BoundCall) -> dict[str, str]:
    """For each leaf of the arguments, what the lookup key knows of it, in words."""
    found = {leaf.name: _leaf_text(leaf) for leaf in call.leaves}
    return found | {name: f"static {value!r}" for name, value in call.statics}


def reason_for(
    call: BoundCall, programs: Sequence[Compiled], described: Mapping[Hashable, Mapping[str, str]]
) -> tuple[str, SourceLine | None]:
    """Why no program serves the call: ``programs`` have its key, ``described`` are all keys in order of their first
    trace. Returned are the reason and the line of the guard that failed."""
    if programs:
        return _failing(call, programs[0])
    if not described:
        return "first call", None
    new = describe(call)
    previous = list(described.values())[-1]
    changes = [f"argument {k} is {v}, was {previous[k]}" for k, v in new.items() if k in previous and previous[k] != v]
    if changes:
        return "; ".join(changes), None
    if new.keys() != previous.keys():
        return f"the arguments are {', '.join(new) or 'none'}, were {', '.join(previous) or 'none'}", None
    return "the arguments have another structure, class or engine", None


def _failing(call: BoundCall, program: Compiled) -> tuple[str, SourceLine | None]:
    failing = program.captures.failing(call.receiver)
    if failing is not None:
        return failing.failure(call.receiver), failing.line
    late = program.late(call.receiver)
    if late is None:
        return "a captured array has another class, dtype or rank", None
    env = environment(program.program, [*(leaf.value for leaf in call.dynamic), *late.inputs])
    for guard in program.program.guards:
        if not holds(guard, env):
            values = ", ".join(f"{in_words(str(x), program.program)} is {env[x]}" for x in _leaves(guard))
            why = f"; {_asked_by(guard)}" if guard.asked in API else _without_int(guard)
            return f"{in_words(str(guard), program.program)} holds no longer: {values}{why}", guard.line
    return "the program was dropped", None


def guard_text(guard: ShapeGuard, program: SemanticProgram) -> str:
    """The guard in the user's words, with its line."""
    text = in_words(str(guard), program) + at(guard.line)
    if guard.asked.startswith("text of"):
        return f"{text} (the text of a size pins it)"
    if guard.asked in API:
        return f"{text} ({_asked_by(guard)})"
    if guard.asked != "len":
        return text
    return f"{text} (len pins the size; {in_words(str(_leaves(guard)[0]), program)} does not)"


def _asked_by(guard: ShapeGuard) -> str:
    return f"{guard.asked} needs the size as a number, each is a program of its own"


def _without_int(guard: ShapeGuard) -> str:
    """What serves every value of an int argument where a program serves one."""
    is_one = guard.relation == "==" and guard.holds and {leaf.kind for leaf in _leaves(guard)} == {"int"}
    return "; a float or an array in place of the int needs one program" if is_one else ""


def _leaves(guard: Any) -> list[dims.Leaf]:
    return sorted(dims.leaves(guard.lhs) | dims.leaves(guard.rhs))
