"""``checkpoint``: a function in, the same function whose derivative computes again instead of keeping, out.

``checkpoint_policies`` say what is kept all the same; ``checkpoint_name`` names values for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Contraction, Op
from tenferro.tracer.program import ArrayType
from tenferro.tracer.signature import function_name
from tenferro.tracer.trace import current_trace, running_trace
from tenferro.tracer.transform import marks
from tenferro.tracer.transform.checkpoints import Setting, call
from tenferro.tracer.transform.inputs import delivered, open_tree
from tenferro.transformed import Function, Transformed

Policy: TypeAlias = Callable[..., bool]


def checkpoint(
    fun: Function, *, prevent_cse: bool = True, policy: Policy | None = None, static_argnums: int | Sequence[int] = ()
) -> Transformed:
    """The same function, of which a derivative keeps nothing but the arguments and computes the rest again.

    policy: which results of operations are kept all the same: one of ``tn.checkpoint_policies``, or a function
    ``policy(op, *operand_types, **params) -> bool``. prevent_cse: what is computed again is not merged with what was
    computed before; False where that cannot happen, as in the body of a loop. static_argnums: arguments that are handed
    on as they are.

    Memory of the forward pass falls to that of the arguments, time grows by about one forward pass. Results and
    derivatives keep their bits. ShapeError for results whose sizes are known only when the program runs."""
    name = f"checkpoint({function_name(fun)})"
    if policy is not None and not callable(policy):
        raise TypeError(f"{name}: policy is {policy!r}; a function is needed{at(user_line())}")
    fixed = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    setting = Setting(policy, prevent_cse)

    def around(function: Function) -> Function:
        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            trace = running_trace(name)
            places = {k % len(args) for k in fixed if args}
            given = open_tree(trace, ([x for k, x in enumerate(args) if k not in places], kwargs), name)

            def run(values: Any) -> Any:
                free = iter(values[0])
                return function(*(x if k in places else next(free) for k, x in enumerate(args)), **values[1])

            return call(trace, run, given, setting, name)

        return checkpointed

    return Transformed(fun, around, name)


remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """The same values, under a name that ``checkpoint_policies.save_only_these_names`` and its like know."""
    trace = current_trace()
    if trace is None:
        return x
    given = open_tree(trace, x, "checkpoint_name: x")
    made = [
        delivered(trace, trace.emit1(marks.checkpoint_name, leaf.operand, name=name), leaf) for leaf in given.leaves
    ]
    return given.close(made)


def _everything(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep every result."""
    return True


def _nothing(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep none, as without a policy."""
    return False


def _dots(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep the results of matrix products."""
    return isinstance(op.form, Contraction)


def _dots_without_batch(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep the results of matrix products that have no batch axes."""
    return isinstance(op.form, Contraction) and all(t.rank <= 2 for t in types)


def _only(*names: str) -> Policy:
    """Keep the values of these names."""

    def save_only_these_names(op: Op, *types: ArrayType, **params: Any) -> bool:
        return op is marks.checkpoint_name and params["name"] in names

    return save_only_these_names


def _any_names_but(*names: str) -> Policy:
    """Keep the values that have another name than these."""

    def save_any_names_but_these(op: Op, *types: ArrayType, **params: Any) -> bool:
        return op is marks.checkpoint_name and params["name"] not in names

    return save_any_names_but_these


def _anything_except(*names: str) -> Policy:
    """Keep every result but the values of these names."""

    def save_anything_except_these_names(op: Op, *types: ArrayType, **params: Any) -> bool:
        return not (op is marks.checkpoint_name and params["name"] in names)

    return save_anything_except_these_names


def _both(first: Policy, second: Policy) -> Policy:
    """Keep what one of two policies keeps."""

    def save_from_both_policies(op: Op, *types: ArrayType, **params: Any) -> bool:
        return first(op, *types, **params) or second(op, *types, **params)

    return save_from_both_policies


class checkpoint_policies:
    """What a checkpointed function keeps, under JAX's names."""

    everything_saveable = staticmethod(_everything)
    nothing_saveable = staticmethod(_nothing)
    dots_saveable = checkpoint_dots = staticmethod(_dots)
    dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = staticmethod(_dots_without_batch)
    save_only_these_names = staticmethod(_only)
    save_any_names_but_these = staticmethod(_any_names_but)
    save_anything_except_these_names = staticmethod(_anything_except)
    save_from_both_policies = staticmethod(_both)
