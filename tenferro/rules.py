"""What functions with derivatives of their own share: calls in, operands that a rule speaks of out.

Rules are Python functions of pytrees. They are called when a derivative is taken, in the trace in which it is taken,
and may themselves be differentiated, mapped and jitted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from tenferro.tracer.derivation import Derivation
from tenferro.tracer.errors import DerivativeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op, Tangents
from tenferro.tracer.program import ArrayType, Operand
from tenferro.tracer.records import dataclass
from tenferro.tracer.signature import check_function, function_name
from tenferro.tracer.trace import Trace, current_trace
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform import custom
from tenferro.tracer.transform.inputs import Leaf, Opened, is_size, open_tree, results_of, type_text
from tenferro.tracer.transform.linear import has_tangent, sized
from tenferro.tracer.transform.rules import Rule
from tenferro.tracer.tree import TreeDef, opened, structure
from tenferro.transformed import Function


class Custom:
    """A function with a rule. Call it as the function itself; ``__wrapped__`` is that."""

    _mark: Op
    _rules: tuple[str, ...]  # the attributes that hold them
    _around = "rules"  # it is more than the function that it wraps
    __wrapped__: Function
    __name__: str
    __qualname__: str

    def __init__(
        self, fun: Function, nondiff_argnums: int | Sequence[int] = (), nondiff_argnames: str | Iterable[str] = ()
    ) -> None:
        name = type(self).__name__
        check_function(fun, f"{name}: fun")
        functools.update_wrapper(self, fun)
        self.__wrapped__ = fun
        self._name = f"{name}({function_name(fun)})"
        self._nondiff = _places(fun, nondiff_argnums, nondiff_argnames, self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = _positional(self.__wrapped__, args, kwargs, self._name)
        self._check_rules()
        trace = current_trace()
        if trace is None:
            return self.__wrapped__(*args)
        from tenferro.tracer.substitution import substitute

        call = Call(trace, self._name, args, self._nondiff)
        function = substitute(self.__wrapped__)

        def run(given: Any) -> Any:
            result = function(*call.arguments(given))
            call.result = structure(result)
            return result

        return custom.call(trace, run, call.given, self._mark, self._rule(call))

    def _check_rules(self) -> None:
        raise NotImplementedError

    def _rule(self, call: Call) -> Rule:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<{self._name}>"


def _places(fun: Function, nums: int | Sequence[int], names: str | Iterable[str], name: str) -> tuple[int, ...]:
    found = [nums] if isinstance(nums, int) else list(nums)
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted and all(k >= 0 for k in found):
        return tuple(sorted(found))
    parameters = list(inspect.signature(fun).parameters)
    for n in wanted:
        if n not in parameters:
            raise ValueError(
                f"{name}: nondiff_argnames has {n!r}; a parameter of the function is needed{at(user_line())}"
            )
        found.append(parameters.index(n))
    return tuple(sorted({k % len(parameters) for k in found}))


def _positional(fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> tuple[Any, ...]:
    """The arguments by position, defaults included."""
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except ValueError:  # it has no signature
        if kwargs:
            raise
        return args
    except TypeError as error:
        raise TypeError(f"{name}: {error}{at(user_line())}") from None
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"{name}: argument {next(iter(bound.kwargs))} by keyword only; arguments of position are needed where a "
            f"rule speaks of them{at(user_line())}"
        )
    return bound.args


class Call:
    """One call in a trace. ``given`` are the numeric leaves that the rule speaks of: those of the arguments that are
    differentiated, and traced ones of the others, which are not. ``result``: the structure of what it gives."""

    result: TreeDef

    def __init__(self, trace: Trace, name: str, args: tuple[Any, ...], nondiff: tuple[int, ...]) -> None:
        for k in nondiff:
            if k >= len(args):
                raise ValueError(
                    f"{name}: nondiff_argnums has {k} in a call with {len(args)} arguments; places of arguments are "
                    f"needed{at(user_line())}"
                )
        self.name = name
        self._nondiff = nondiff
        self._count = len(args)
        held = tuple([args[k] for k in nondiff])
        mine = tuple([x for k, x in enumerate(args) if k not in nondiff])
        fixed = open_tree(trace, held, name, lambda x: type(x) is TracedArray)
        free = open_tree(trace, mine, name)
        self._fixed, self.free = fixed, free
        values = (*fixed.values, *free.values)
        places = (*fixed.places, *(len(fixed.values) + k for k in free.places))
        both = opened((held, mine), name)[1]
        self.given = Opened(both, values, places, (*fixed.leaves, *free.leaves))
        found = [values[k] for k in places]
        self.forms = [
            Kind(x.weak, x.scalar, x.path, v if is_size(v) else None)
            for x, v in zip(self.given.leaves, found, strict=True)
        ]

    @property
    def is_free(self) -> list[bool]:
        """For each leaf whether it is differentiated."""
        return [False] * len(self._fixed.leaves) + [True] * len(self.free.leaves)

    def arguments(self, given: Any) -> list[Any]:
        """All arguments in order, from the pytree of ``given``."""
        held, mine = iter(given[0]), iter(given[1])
        return [next(held) if k in self._nondiff else next(mine) for k in range(self._count)]

    def rebuilt(self, trace: Trace, primals: Sequence[Operand]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments that are not differentiated, and those that are, from operands."""
        found = self.given.close([k.variable(trace, x, self.name) for k, x in zip(self.forms, primals, strict=True)])
        return found[0], found[1]

    def tangents(self, trace: Trace, tangents: Tangents, primals: Sequence[Operand]) -> tuple[Any, ...]:
        """The tangents of the arguments that are differentiated; zeros where they are 0."""
        count = len(self._fixed.leaves)
        for t, k in zip(tangents[:count], self.forms, strict=False):
            if t is not None:
                raise DerivativeError(
                    f"{self.name}: differentiated with respect to argument {k.path} of nondiff_argnums; an argument "
                    f"that the rule speaks of is needed{at(user_line())}"
                )
        b = Derivation(trace)
        made = [
            k.variable(trace, b.zeros(x.type) if t is None else t, self.name)
            for k, x, t in zip(self.forms[count:], primals[count:], tangents[count:], strict=True)
        ]
        return tuple(self.free.close(made))


@dataclass(frozen=True, slots=True)
class Kind:
    """What stands for a leaf in a rule. ``size``: the int or size that is handed on as it is."""

    weak: bool
    scalar: bool
    path: str
    size: Any = None

    def variable(self, trace: Trace, value: Operand, name: str) -> Any:
        """A variable of the kind, which the rule may not write; an int as it is."""
        if self.size is not None:
            return self.size
        return Leaf(value, self.weak, self.scalar, self.path).variable(trace, value, f"argument of the rule of {name}")


def fitted(trace: Trace, leaf: Leaf, wanted: ArrayType, what: str) -> Operand:
    """A leaf that a rule gave, in the type that it must have. ShapeError names both where it has not."""
    mine = leaf.operand.type
    same = len(mine.shape) == len(wanted.shape) and all(
        trace.guard("==", n, m) for n, m in zip(mine.shape, wanted.shape, strict=True)
    )
    if same and (mine.dtype == wanted.dtype or leaf.weak or not has_tangent(wanted.dtype)):
        return sized(trace, Derivation(trace).convert(leaf.operand, wanted.dtype), wanted)
    raise ShapeError(f"{what} is {type_text(trace, mine)}; {type_text(trace, wanted)} is needed{at(user_line())}")


def matched(trace: Trace, tree: Any, like: Opened, wanted: Sequence[ArrayType], what: str) -> list[Operand]:
    """The operands of a pytree that a rule gave, which must have the structure of another one and these types."""
    found = results_of(trace, tree, what).in_order_of(like.treedef)
    if found.treedef != like.treedef:
        raise ShapeError(f"{what} has the structure {found.treedef}; {like.treedef} is needed{at(user_line())}")
    return [fitted(trace, x, t, f"{what}{x.path}") for x, t in zip(found.leaves, wanted, strict=True)]


def value_of(trace: Trace, tree: Any, like: TreeDef, what: str) -> Opened:
    """The value that a rule gave, which must have the structure of what the function itself gives."""
    found = results_of(trace, tree, what).in_order_of(like)
    if found.treedef != like:
        raise ShapeError(
            f"{what} has the structure {found.treedef}; that of the function's result, {like}, is "
            f"needed{at(user_line())}"
        )
    return found


def check_symbolic(symbolic_zeros: bool, name: str) -> None:
    """TypeError: rules have no use for zeros that are no arrays."""
    if symbolic_zeros:
        raise TypeError(
            f"{name}: symbolic_zeros=True; rules get zeros as arrays here, False is needed{at(user_line())}"
        )


def shown(x: Any) -> str:
    """A value's class, for error texts."""
    return "an array" if type(x) is TracedArray else f"a {type(x).__name__}"
