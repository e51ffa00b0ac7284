"""Random small NumPy functions: a source of choices in, a ``RandomProgram`` out.

A statement is proposed as text and kept if NumPy runs it at every size the program will be called with; shapes and
dtypes therefore need no model of their own. What is tracked is how exactly a value is determined: ``error`` is 0 where
IEEE arithmetic fixes the bits, else the coarsest machine epsilon on the way to it. Functions that jump (comparisons,
floor division, argmax, conversions to integers) are only applied to values with error 0.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tests.values import laid_out, tame

Array: TypeAlias = np.ndarray[Any, Any]
Choose: TypeAlias = Callable[[int], int]
"""``choose(n)`` is a whole number in [0, n)."""

ARGUMENT_DTYPES = (
    "float64",
    "float32",
    "int64",
    "int32",
    "float64",
    "float32",
    "bool",
    "uint8",
    "int8",
    "float16",
    "complex64",
    "complex128",
)
ORDERS = ("C", "F", "strided", "reversed", "offset")
LARGEST = 100.0


@dataclass(frozen=True)
class Argument:
    name: str
    dtype: str
    shape: tuple[str | int, ...]  # symbols of the size assignment, or constants
    order: str
    seed: int

    def array(self, sizes: Mapping[str, int]) -> Array:
        """Tame values: multiples of 1/8 below 32, so that short sums of them are exact in every order."""
        shape = tuple(sizes[s] if isinstance(s, str) else s for s in self.shape)
        values = np.random.default_rng(self.seed).choice(tame(np.dtype(self.dtype)), shape)
        return laid_out(np.array(values), self.order)


@dataclass(frozen=True)
class RandomProgram:
    arguments: tuple[Argument, ...]
    body: tuple[str, ...]
    results: tuple[str, ...]
    errors: tuple[float, ...]  # per result, see the module's docstring
    sizes: tuple[Mapping[str, int], ...]

    @property
    def source(self) -> str:
        names = ", ".join(a.name for a in self.arguments)
        lines = [f"def f({names}):", *(f"    {line}" for line in self.body), f"    return {', '.join(self.results)},"]
        return "\n".join(lines) + "\n"

    def function(self, module: Any = np) -> Callable[..., tuple[Any, ...]]:
        """A new function object at each call; ``module`` is what it knows as np."""
        scope: dict[str, Any] = {"np": module, "__name__": "random_program"}
        exec(compile(self.source, "<random program>", "exec"), scope)
        made: Callable[..., tuple[Any, ...]] = scope["f"]
        return made

    def inputs(self, sizes: Mapping[str, int]) -> list[Array]:
        return [a.array(sizes) for a in self.arguments]

    def runnable(self) -> str:
        """Python text that runs the program on its inputs under NumPy and jitted, for a bug report."""
        calls = []
        for sizes in self.sizes:
            arrays = zip(self.arguments, self.inputs(sizes), strict=True)
            texts = [
                f"laid_out(np.array({x.tolist()!r}, {a.dtype!r}).reshape({x.shape}), {a.order!r})" for a, x in arrays
            ]
            calls += [
                "arguments = (",
                *(f"    {t}," for t in texts),
                ")",
                "print(f(*arguments))",
                "print(g(*arguments))",
            ]
        imports = "import numpy as np\nimport tenferro as tn\nfrom typing import Any\n\n"
        return "\n".join([imports, inspect.getsource(laid_out), "", self.source, "", "g = tn.jit(f)", *calls]) + "\n"


@dataclass
class Family:
    """Variables that share memory. ``owned``: made by the function, so that it may write to it."""

    owned: bool
    error: float = 0.0
    frozen: bool = False  # a reshape of it exists: view or copy depends on NumPy's memory order


@dataclass
class Variable:
    name: str
    family: Family
    loose: bool = False  # its size depends on data
    views_whole: bool = True


@dataclass
class Proposal:
    """A statement, what it assigns and how exact that is; ``target`` None for a write into ``writes``."""

    text: str
    error: float
    view_of: Variable | None = None
    owned: bool = True
    loose: bool = False
    freezes: bool = False
    writes: Variable | None = None
    sums: Variable | None = None  # exact only if every partial sum is


@dataclass
class State:
    """What the generator has made so far, with its values at every size."""

    choose: Choose
    arguments: tuple[Argument, ...]
    sizes: tuple[Mapping[str, int], ...]
    body: list[str] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    scopes: list[dict[str, Any]] = field(default_factory=list)

    def restart(self) -> None:
        """Run the body anew (a refused statement may have written at some sizes)."""
        self.scopes = []
        for sizes in self.sizes:
            scope: dict[str, Any] = {"np": np, **{a.name: a.array(sizes) for a in self.arguments}}
            with np.errstate(all="ignore"):
                for line in self.body:
                    exec(line, scope)
            self.scopes.append(scope)

    def pick(self, wanted: Callable[[Array, Variable], bool] = lambda x, v: True) -> Variable | None:
        """A variable whose value (at the first size) is wanted, the newest ones more often."""
        found = [v for v in self.variables if wanted(np.asarray(self.scopes[0][v.name]), v)]
        return found[max(self.choose(len(found)), self.choose(len(found)))] if found else None

    def value(self, variable: Variable) -> Array:
        return np.asarray(self.scopes[0][variable.name])

    def one_of(self, *options: Any) -> Any:
        return options[self.choose(len(options))]


def epsilon(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0


def _acceptable(value: Any, loose: bool) -> bool:
    x = np.asarray(value)
    if x.dtype.kind not in "biufc" or x.size > 3000 or x.ndim > 4:
        return False
    if x.dtype.kind in "biu":
        return True
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(x)) and np.all(np.abs(x.astype(np.complex128)) <= LARGEST))


def _sum_is_exact(x: Array) -> bool:
    """Every partial sum, in any order, has few enough bits: multiples of 2^-10 whose magnitudes add up to little."""
    if x.dtype.kind not in "fc":
        return True
    parts = np.stack([x.real, x.imag]).astype(np.float64) * 1024
    limit = 2.0**52 if x.dtype in (np.float64, np.complex128) else 2.0**23
    return bool(np.all(parts == np.rint(parts)) and np.abs(parts).sum() < limit)


def attempt(state: State, proposal: Proposal) -> bool:
    """Run the proposal at every size; keep it and record its variable, or leave the state as it was."""
    name = f"v{len(state.body)}"
    line = proposal.text if proposal.writes else f"{name} = {proposal.text}"
    written = proposal.writes.name if proposal.writes else name
    error = proposal.error
    if proposal.sums and not all(_sum_is_exact(np.asarray(s[proposal.sums.name])) for s in state.scopes):
        error = max(error, epsilon(state.value(proposal.sums).dtype), epsilon(np.dtype(np.float64)))
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")  # a mean of nothing, a discarded imaginary part
            for scope in state.scopes:
                exec(line, scope)
        good = all(_acceptable(s[written], proposal.loose) for s in state.scopes)
        good = good and len({np.asarray(s[written]).ndim for s in state.scopes}) == 1
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError, AttributeError, Warning):
        good = False
    if not good:
        state.restart()
        return False
    state.body.append(line)
    if proposal.writes:
        proposal.writes.family.error = max(proposal.writes.family.error, error)
        return True
    if proposal.view_of is not None and np.asarray(state.scopes[0][name]).ndim:
        family = proposal.view_of.family
        family.frozen |= proposal.freezes
    else:
        if error:
            error = max(error, epsilon(np.asarray(state.scopes[0][name]).dtype))
        family = Family(proposal.owned, error)
    state.variables.append(Variable(name, family, proposal.loose))
    return True


def generate(choose: Choose, propose: Callable[[State], Proposal | None]) -> RandomProgram:
    """A program of 3 to 9 statements on one to three arguments, at three sizes."""
    arguments = tuple(_argument(choose, name) for name in "xyz"[: 1 + choose(3)])
    smallest = 0 if choose(6) == 0 else 1
    sizes = [{"n": 2 + choose(6), "m": 2 + choose(6)} for _ in range(2)]
    sizes.append({"n": smallest + choose(3), "m": smallest + choose(12)})
    state = State(choose, arguments, tuple(sizes))
    state.variables = [Variable(a.name, Family(owned=False)) for a in arguments]
    state.restart()
    wanted, tries = 3 + choose(7), 0
    while len(state.body) < wanted and tries < 60:
        tries += 1
        proposal = propose(state)
        if proposal is not None:
            attempt(state, proposal)
    made = [v for v in state.variables if v.name not in {a.name for a in arguments}] or state.variables
    results = dict.fromkeys([made[-1].name, *(made[choose(len(made))].name for _ in range(2))])
    errors = tuple(next(v.family.error for v in state.variables if v.name == r) for r in results)
    return RandomProgram(arguments, tuple(state.body), tuple(results), errors, tuple(sizes))


def _argument(choose: Choose, name: str) -> Argument:
    shapes: tuple[tuple[str | int, ...], ...] = (("n", "m"), ("n", "m"), ("m",), ("n", 1), ("n",), (2, "n", "m"), ())
    shape = shapes[choose(len(shapes))]
    dtype = ARGUMENT_DTYPES[choose(len(ARGUMENT_DTYPES))]
    return Argument(name, dtype, shape, ORDERS[choose(len(ORDERS))], choose(100))
