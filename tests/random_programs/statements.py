"""The statements that random programs are made of: a state in, a ``Proposal`` out (or None where nothing fits)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.random_programs.generator import Array, Proposal, State, Variable, epsilon


def _exact(x: Array, v: Variable) -> bool:
    return v.family.error == 0 and not v.loose


def _any(x: Array, v: Variable) -> bool:
    return True


def _fixed(x: Array, v: Variable) -> bool:
    return not v.loose


def _error_of(state: State, *variables: Variable) -> float:
    return max(v.family.error for v in variables)


def _constant(state: State, x: Array) -> str:
    whole = ("1", "2", "3")
    match x.dtype.kind:
        case "f":
            return str(state.one_of(*whole, "0.5", "-1.5", "0.25"))
        case "c":
            return str(state.one_of(*whole, "0.5", "1j", "-0.5j"))
        case _:
            return str(state.one_of(*whole))


def binary(state: State) -> Proposal | None:
    a = state.pick()
    b = state.pick(_fixed)
    if a is None or b is None:
        return None
    x, y = state.value(a), state.value(b)
    left, right = a.name, b.name
    error = _error_of(state, a, b)
    if a.loose or state.choose(3) == 0:
        left, right, error = a.name, _constant(state, x), a.family.error
        if state.choose(2):
            left, right = right, left
        y = x
    operator = state.one_of("+", "-", "*", "+", "*", "np.maximum", "np.minimum", "/", "&", "|", "^")
    if operator == "/":
        right = f"(np.abs({right}) + 1)" if right.isidentifier() else "4"
    if "c" in x.dtype.kind + y.dtype.kind and operator in ("*", "/"):
        error = max(error, epsilon(np.result_type(x, y)))
    text = f"{operator}({left}, {right})" if operator.startswith("np") else f"{left} {operator} {right}"
    return Proposal(text, error, loose=a.loose)


def jump(state: State) -> Proposal | None:
    """Functions that jump, on exact operands."""
    a, b = state.pick(_exact), state.pick(_exact)
    if a is None or b is None:
        return None
    right = b.name if state.choose(2) else _constant(state, state.value(a))
    operator = state.one_of("<", "<=", "==", "!=", ">", ">=", "//", "%")
    return Proposal(f"{a.name} {operator} {right}", 0.0)


def unary(state: State) -> Proposal | None:
    a = state.pick()
    if a is None:
        return None
    x, n = state.value(a), a.name
    if x.dtype == np.bool_:
        return Proposal(f"~{n}", 0.0, loose=a.loose)  # bool ** 2 is int8 as an operator, int64 as np.power
    template = state.one_of(
        "-{}", "np.abs({})", "~{}", "np.conj({})", "+{}", "np.exp({} * 0.25)", "np.sin({})", "np.cos({})",
        "np.tanh({})",
        "np.sqrt(np.abs({}) + 1)", "np.log(np.abs({}) + 1)", "({}) ** 2", "np.square({})",
    )  # fmt: skip
    elementary = any(f in template for f in ("exp", "sin", "cos", "tanh", "log"))
    result = np.result_type(x.dtype, np.float16) if x.dtype.kind in "biu" else x.dtype
    error = a.family.error
    if elementary or (x.dtype.kind == "c" and template not in ("-{}", "np.conj({})", "+{}")):
        error = max(error, epsilon(result), epsilon(np.dtype(np.float64)))
    return Proposal(template.format(n), error, loose=a.loose)


def convert(state: State) -> Proposal | None:
    target = state.one_of(
        "np.float32", "np.float64", "np.int32", "bool", "np.complex64", "float", "np.int8", "np.float16"
    )
    integral = target in ("np.int32", "bool", "np.int8")
    a = state.pick(_exact if integral else _fixed)
    if a is None or (state.value(a).dtype.kind == "c" and "complex" not in target):
        return None
    if state.value(a).dtype.kind == "f" and target == "np.int8":
        return None  # NumPy's result out of range depends on the machine
    error = a.family.error
    return Proposal(
        f"{a.name}.astype({target})",
        max(error, epsilon(np.dtype(target[3:]))) if error and "np." in target and not integral else error,
    )


def choice(state: State) -> Proposal | None:
    condition = state.pick(lambda x, v: _exact(x, v) and x.dtype == np.bool_)
    a, b = state.pick(_fixed), state.pick(_fixed)
    if condition is None or a is None or b is None:
        return None
    other = b.name if state.choose(2) else _constant(state, state.value(a))
    return Proposal(f"np.where({condition.name}, {a.name}, {other})", _error_of(state, a, b))


def _axis(state: State, rank: int) -> str:
    options = ["None", *(str(k) for k in range(-1 if rank else 0, rank))]
    if rank >= 2:
        options += ["(0, 1)", "(0, -1)"]
    return options[state.choose(len(options))]


def reduction(state: State) -> Proposal | None:
    function = state.one_of("sum", "max", "min", "mean", "sum", "argmax", "argmin", "var")
    a = state.pick((lambda x, v: _exact(x, v) and x.dtype.kind != "c") if function.startswith("arg") else _any)
    if a is None:
        return None
    x = state.value(a)
    axis = _axis(state, x.ndim)
    if function.startswith("arg") and "(" in axis:
        axis = "0"
    keep = ", keepdims=True" if state.choose(3) == 0 else ""
    error = a.family.error
    if function == "var" or (function in ("sum", "mean") and x.dtype.kind == "c"):
        error = max(error, epsilon(x.dtype), epsilon(np.dtype(np.float64)))
    text = (
        f"{a.name}.{function}(axis={axis}{keep})" if state.choose(2) else f"np.{function}({a.name}, axis={axis}{keep})"
    )
    loose = a.loose and axis != "None" and x.ndim > 1
    if a.loose and function not in ("sum",):
        return None  # of no elements
    return Proposal(text, error, loose=loose, sums=a if function in ("sum", "mean") else None)


def view(state: State) -> Proposal | None:
    a = state.pick(_fixed)
    if a is None:
        return None
    templates = [
        "{}[1:]", "{}[:-1]", "{}[::-1]", "{}[::2]", "{}[None]", "{}.T", "{}[..., 0]", "{}[-1]", "{}[..., None]",
        "{}[:, ::-1]", "{}[1:-1]", "{}[..., 1:]", "{}[:, None]", "{}[: {}.shape[0] // 2]", "{}[::-2]", "{}[-3:]",
        "np.transpose({})", "{}[..., ::-2]", "np.swapaxes({}, 0, -1)", "np.squeeze({})", "{}[:2, 1:]",
    ]  # fmt: skip
    template = templates[state.choose(len(templates))]
    return _viewed(state, a, template)


def _viewed(state: State, a: Variable, template: str, *, freezes: bool = False) -> Proposal:
    """Of a scalar NumPy makes a new array, tn.Array a view: that one is not written to."""
    base = a if state.value(a).ndim else None
    return Proposal(template.replace("{}", a.name), a.family.error, view_of=base, owned=False, freezes=freezes)


def reshape(state: State) -> Proposal | None:
    a = state.pick(_fixed)
    if a is None:
        return None
    template = state.one_of(
        "{}.reshape(-1)", "{}.ravel()", "{}.reshape({}.shape[::-1])", "{}.reshape({}.shape + (1,))",
        "{}.reshape(1, -1)",
        "{}.reshape(-1, {}.shape[-1])", "np.broadcast_to({}, (3,) + {}.shape)", "{}.T.reshape(-1)",
    )  # fmt: skip
    return _viewed(state, a, template, freezes=True)


def joined(state: State) -> Proposal | None:
    a = state.pick(_fixed)
    b = state.pick(_fixed)
    if a is None or b is None:
        return None
    template = state.one_of(
        "np.concatenate([{a}, {b}])", "np.concatenate([{a}, {b}, {a}], axis=-1)", "np.stack([{a}, {b}])",
        "np.pad({a}, 1)",
        "np.pad({a}, (1, 2))", "np.stack([{a}, {a}], axis=-1)", "np.concatenate([{a}[1:], {a}[:1]])",
    )  # fmt: skip
    return Proposal(template.format(a=a.name, b=b.name), _error_of(state, a, b))


def indexed(state: State) -> Proposal | None:
    a = state.pick(_fixed)
    if a is None:
        return None
    template = state.one_of(
        "np.take({}, [0, -1, 0], axis=0)", "np.take({}, np.arange({}.shape[0]) // 2, axis=0)", "{}[[0, -1]]",
        "{}[np.arange({}.shape[0])[::-1]]", "np.take({}, [[0], [-1]], axis=-1)", "np.cumsum({}, axis=0)",
        "np.cumsum({})",
    )  # fmt: skip
    if not state.value(a).ndim:
        return None  # NumPy takes axis 0 and -1 of rank 0; tenferro refuses them
    return Proposal(template.replace("{}", a.name), a.family.error, sums=a if "cumsum" in template else None)


def created(state: State) -> Proposal | None:
    # Where its shape is one number for all sizes NumPy itself evaluates functions of the array, with its own last bits.
    a = state.pick(lambda x, v: _fixed(x, v) and len({np.shape(s[v.name])[:1] for s in state.scopes}) > 1)
    if a is None:
        return None
    template = state.one_of(
        "np.zeros({}.shape)", "np.zeros_like({})", "{}.copy()", "np.ones({}.shape, {}.dtype)", "np.full({}.shape, 2)",
        "np.arange({}.shape[0])", "np.array({})", "np.arange({}.size).reshape({}.shape)",
        "np.zeros(({}.shape[0], 2), int)",
    )  # fmt: skip
    fresh_only = "copy" in template or "np.array(" in template
    return Proposal(template.replace("{}", a.name), a.family.error if fresh_only else 0.0)


def selected(state: State) -> Proposal | None:
    mask = state.pick(lambda x, v: _exact(x, v) and x.dtype == np.bool_ and x.ndim > 0)
    if mask is None:
        return None
    shape = state.value(mask).shape
    a = state.pick(lambda x, v: _fixed(x, v) and x.shape == shape)
    return Proposal(f"{a.name}[{mask.name}]", a.family.error, loose=True) if a is not None else None


def product(state: State) -> Proposal | None:
    a = state.pick(lambda x, v: _fixed(x, v) and x.ndim in (1, 2) and x.dtype.kind in "iuf")
    b = state.pick(lambda x, v: _fixed(x, v) and x.ndim in (1, 2) and x.dtype.kind in "iuf")
    if a is None or b is None:
        return None
    template = state.one_of("{a} @ {b}", "{a} @ {a}.T", "{a}.T @ {b}", "np.dot({a}, {b})")
    error = max(_error_of(state, a, b), epsilon(np.result_type(state.value(a), state.value(b))))
    return Proposal(template.format(a=a.name, b=b.name), error)


def write(state: State) -> Proposal | None:
    v = state.pick(lambda x, v: v.family.owned and not v.family.frozen and x.ndim > 0 and not v.loose)
    b = state.pick(_fixed)
    if v is None or b is None:
        return None
    right, error = (b.name, b.family.error) if state.choose(2) else (_constant(state, state.value(v)), 0.0)
    template = state.one_of(
        "{v} += {b}", "{v}[1:] *= {b}", "{v}[::2] = {b}", "{v}[0] = {b}", "{v}[...] = {b}", "{v}[:, 0] -= {b}",
        "{v}[1:-1] += {b}", "{v}[-1] = {v}[0]", "{v}[1:] = {v}[:-1]", "{v}[::-1] += {v}", "np.copyto({v}, {v} + {b})",
        "np.add({v}, {b}, out={v})", "{v} -= {b}", "{v}[..., ::2] *= 2", "{v}[{v} > 0] = {b}", "{v}[[0, -1]] = {b}",
    )  # fmt: skip
    if ("> 0" in template and v.family.error) or (state.value(b).ndim and right == b.name and "> 0" in template):
        return None
    x = state.value(v)
    if x.dtype.kind in "biu" and (error or state.value(b).dtype.kind not in "biu" and right == b.name):
        return None  # assignment would convert a float to an integer
    if x.dtype.kind == "c" and "*=" in template or error and x.dtype.kind in "fc":
        error = max(error, epsilon(x.dtype))
    return Proposal(template.format(v=v.name, b=right), error, writes=v)


STATEMENTS: tuple[Callable[[State], Proposal | None], ...] = (
    binary, binary, binary, unary, unary, jump, choice, convert, reduction, reduction, view, view, reshape, joined,
    indexed,
    created, created, write, write, write, selected, product,
)  # fmt: skip


def propose(state: State) -> Proposal | None:
    return STATEMENTS[state.choose(len(STATEMENTS))](state)
