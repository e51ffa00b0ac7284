"""Slopes of pointwise rows against JAX: at ordinary points, and at kinks, as docs/gradients.md says what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.op import Constant, Pointwise
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import Params
from tests.running import outputs_of
from tests.samples import SAMPLES
from tests.table.derived import Array, jvp_program, made, types_of
from tests.values import uniform

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

INF, NAN = np.inf, np.nan
ONLY_HERE = {"required", "tangent_product", "tangent_quotient", "tangent_pair", "nextafter", "fma"}
"""Rows that JAX has not, or not differentiated; they are compared with differences in ``test_jvp``."""
DOMAIN: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "power"), lambda x: np.abs(x) + 0.1),
    "log1p": lambda x: np.abs(x) - 0.5,
    "arccosh": lambda x: np.abs(x) + 1.1,
    **dict.fromkeys(("arcsin", "arccos", "arctanh", "erfinv"), lambda x: np.tanh(x) * 0.9),
}
"""Where functions are defined, from any numbers."""


def theirs(name: str) -> Callable[..., Any]:
    """The function of JAX that a row is."""
    special = {
        "rsqrt": lax.rsqrt, "erfinv": lax.erf_inv, "erf": lax.erf, "erfc": lax.erfc, "absolute": jnp.abs,
        "astype": lambda x: x, "copy": lambda x: x * 1,
        "where": lambda x, y: jnp.where(x > y, x, y), "sign": _direction,
    }  # fmt: skip
    return special.get(name) or getattr(jnp, name)  # type: ignore[no-any-return]


def _direction(x: Any) -> Any:
    """JAX takes the sign of complex numbers, too, for constant but for steps."""
    return x / jnp.abs(x) if jnp.iscomplexobj(x) else jnp.sign(x)


def ours(name: str, operands: tuple[Array, ...], tangents: list[Array]) -> Array:
    params: dict[str, Any] = {"dtype": operands[0].dtype} if name == "astype" else {}
    program = made(jvp_program, name, types_of(operands), Params(**params), 1)
    return np.asarray(outputs_of(program, [*operands, *tangents])[0])


ROWS = [
    name
    for name in SAMPLES
    if isinstance(OPS[name].form, Pointwise) and callable(OPS[name].jvp) and name not in ONLY_HERE | {"where"}
]


def dtypes(name: str) -> list[str]:
    found = {s.operands[0].dtype.name for s in SAMPLES[name].samples}
    return [d for d in ("float64", "complex128") if d in found]


@pytest.mark.parametrize("name", ROWS)
def test_ordinary_points(name: str) -> None:
    for number, dtype in enumerate(dtypes(name)):
        count = len(SAMPLES[name].samples[0].operands)
        keep = DOMAIN.get(name, lambda x: x) if dtype == "float64" else lambda x: x
        xs = tuple(keep(uniform((200,), dtype, 7 * number + k)) for k in range(count))
        ts = [uniform((200,), dtype, 31 * number + k) for k in range(count)]
        with jax.enable_x64(True):
            _, expected = jax.jvp(theirs(name), xs, tuple(ts))
            np.testing.assert_allclose(ours(name, xs, ts), np.asarray(expected), rtol=1e-7, atol=1e-9)


KINKS: list[tuple[str, tuple[float, ...], tuple[float, ...], bool]] = [
    ("absolute", (0.0,), (0.0,), False),
    ("absolute", (-0.0,), (0.0,), False),
    ("absolute", (-INF,), (-1.0,), True),
    ("sign", (0.0,), (0.0,), True),
    ("maximum", (1.0, 1.0), (0.5, 0.5), True),
    ("maximum", (-0.0, 0.0), (0.5, 0.5), True),
    ("minimum", (2.0, 2.0), (0.5, 0.5), True),
    ("maximum", (0.0, 1.0), (0.0, 1.0), True),
    ("sqrt", (0.0,), (INF,), True),
    ("cbrt", (0.0,), (INF,), True),
    ("rsqrt", (0.0,), (-INF,), True),
    ("log", (0.0,), (INF,), True),
    ("log1p", (-1.0,), (INF,), True),
    ("arcsin", (1.0,), (INF,), True),
    ("arccos", (1.0,), (-INF,), True),
    ("arccosh", (1.0,), (INF,), True),
    ("arctanh", (1.0,), (INF,), True),
    ("power", (0.0, 2.0), (0.0, 0.0), True),
    ("power", (0.0, 1.0), (1.0, 0.0), True),
    ("power", (0.0, 0.0), (0.0, 0.0), False),
    ("power", (2.0, 0.0), (0.0, np.log(2.0)), True),
    ("power", (0.0, 0.5), (INF, 0.0), True),
    ("power", (0.0, -1.0), (-INF, 0.0), False),
    ("power", (-2.0, 3.0), (12.0, NAN), True),
    ("hypot", (0.0, 0.0), (0.0, 0.0), False),
    ("arctan2", (0.0, 0.0), (NAN, NAN), True),
    ("arctan2", (1e-200, 1e-200), (5e199, -5e199), False),
    ("logaddexp", (-INF, 1.0), (0.0, 1.0), True),
    ("logaddexp", (-INF, -INF), (0.5, 0.5), False),
    ("logaddexp", (INF, 1.0), (1.0, 0.0), False),
    ("logaddexp2", (INF, INF), (0.5, 0.5), False),
    ("copysign", (0.0, -1.0), (-1.0, 0.0), True),
    ("heaviside", (0.0, 0.5), (0.0, 1.0), True),
    ("remainder", (3.0, 1.5), (1.0, -2.0), True),
    ("fmod", (-3.5, 1.5), (1.0, 2.0), True),
    ("exp", (-INF,), (0.0,), True),
    ("tanh", (INF,), (0.0,), True),
]
"""(row, point, slopes, whether JAX has the same): also a table of docs/gradients.md."""


def slope(name: str, xs: tuple[float, ...], k: int) -> float:
    """JAX's along one operand; a zero tangent of another one would meet its infinite slope there."""
    held = [np.float64(x) for x in xs]

    def of_one(x: Any) -> Any:
        return theirs(name)(*held[:k], x, *held[k + 1 :])

    return float(jax.jvp(of_one, (held[k],), (np.float64(1.0),))[1])


@pytest.mark.parametrize(("name", "xs", "expected", "is_theirs"), KINKS)
def test_kinks(name: str, xs: tuple[float, ...], expected: tuple[float, ...], is_theirs: bool) -> None:
    operands = tuple(np.array(x) for x in xs)
    units = [[np.array(1.0 if j == k else 0.0) for j in range(len(xs))] for k in range(len(xs))]
    mine = [float(ours(name, operands, unit)) for unit in units]
    np.testing.assert_allclose(mine, expected, rtol=1e-14)
    with jax.enable_x64(True):
        other = [slope(name, xs, k) for k in range(len(xs))]
    same = bool(np.allclose(other, expected, equal_nan=True))
    assert same == is_theirs, f"{name}{xs}: JAX gives {other}"


def test_every_row_with_steps_is_constant_in_jax() -> None:
    for name, op in OPS.items():
        if isinstance(op.form, Pointwise) and isinstance(op.jvp, Constant) and hasattr(jnp, name):
            count = len(SAMPLES[name].samples[0].operands)
            xs = tuple(uniform((20,), "float64", k) for k in range(count))
            with jax.enable_x64(True):
                _, tangent = jax.jvp(getattr(jnp, name), xs, xs)
            assert not np.asarray(tangent).any(), name


def line_of(name: str, xs: tuple[float, ...], expected: tuple[float, ...], is_theirs: bool) -> str:
    """A line of the page's table."""
    points, found = (", ".join(f"{x:.4g}".replace("inf", "∞").replace("-", "−") for x in v) for v in (xs, expected))
    return f"| `{name}` | {points} | {found} | {'the same' if is_theirs else 'another'} |"


def test_the_page_shows_these_kinks() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "gradients.md").read_text(encoding="utf-8")
    missing = [line for line in (line_of(*kink) for kink in KINKS) if line not in page]
    assert not missing, "\n".join(missing)
