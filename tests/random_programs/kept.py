"""Random programs that once failed, shrunk: each stays a test."""

from __future__ import annotations

from tests.random_programs.generator import Argument, RandomProgram

SIZES = ({"n": 3, "m": 5}, {"n": 5, "m": 2}, {"n": 2, "m": 1})
MATRIX = Argument("x", "float64", ("n", "m"), "C", 1)
STACK = Argument("x", "float32", (2, "n", "m"), "F", 2)
VECTOR = Argument("x", "complex128", ("m",), "strided", 3)
EPSILON = 2.0**-52

KEPT: tuple[RandomProgram, ...] = (
    # An index array along an axis that a scalar was repeated over.
    RandomProgram(
        (MATRIX,),
        ("v0 = np.zeros(x.shape)[::-2]", "v1 = np.cos(v0[:, None])", "v2 = v1[np.arange(v1.shape[0])[::-1]]"),
        ("v2",), (EPSILON,), SIZES,
    ),
    # A size that is 1 by a guard on an expression, stretched.
    RandomProgram((STACK,), ("v0 = x[1:]", "v1 = x * v0"), ("v1",), (0.0,), SIZES),
    # np.array of a traced argument, written to.
    RandomProgram((MATRIX,), ("v0 = np.array(x)", "v0[[0, -1]] = 3"), ("v0",), (0.0,), SIZES),
    # An element taken with an Ellipsis is a view.
    RandomProgram((VECTOR,), ("v0 = x + 1", "v1 = v0[..., 0]", "v0 -= 0.5"), ("v1", "v0"), (0.0, 0.0), SIZES),
    # np.copyto outside a trace.
    RandomProgram((MATRIX,), ("v0 = x + 2", "np.copyto(v0, 0.25)"), ("v0",), (0.0,), SIZES),
    # exp kept between the two passes over a short row whose elements lie apart.
    RandomProgram(
        (MATRIX,), ("v0 = np.exp(x)", "v1 = v0 / v0.sum(axis=0, keepdims=True)"), ("v1",), (EPSILON,), SIZES
    ),
    # Memory of a call's result used again, then updated in place.
    RandomProgram(
        (Argument("x", "int64", ("m",), "C", 4),),
        ("v0 = np.cumsum(x)", "v0[v0 > 0] = 3", "v1 = v0[::-2]", "v2 = np.stack([v1, v1], axis=-1)", "v2[1:-1] += 1",
         "v3 = v2.argmax(axis=None)"),
        ("v3",), (0.0,), ({"m": 5}, {"m": 10}, {"m": 36}),
    ),
    # One element of an axis, picked by a slice and repeated, of a value that is computed again.
    RandomProgram(
        (Argument("x", "complex64", ("m",), "C", 5),),
        ("v0 = x.reshape(1, -1)", "v1 = -v0", "v2 = v1 == -0.5j", "v3 = v1[..., 0]", "v4 = np.where(v2, v1, v3)"),
        ("v4",), (0.0,), SIZES,
    ),
    # out= of size 1 where the result's size is a symbol that is 1.
    RandomProgram(
        (Argument("x", "float64", ("n", 1), "C", 6),),
        ("v0 = x.copy()", "v1 = v0.min(axis=-1, keepdims=True)", "np.add(v1, v0, out=v1)"), ("v1",), (0.0,), SIZES,
    ),
    # The squared deviations of complex numbers.
    RandomProgram((VECTOR,), ("v0 = x.var(axis=0)",), ("v0",), (EPSILON,), SIZES),
    # np.copyto of what has one more axis, of size 1.
    RandomProgram(
        (Argument("x", "bool", ("n", "m"), "strided", 88), Argument("y", "int64", (2, "n", "m"), "reversed", 69)),
        ("v0 = 2 - x", "v1 = y[:-1]", "np.copyto(v0, v0 + v1)"), ("v0",), (0.0,), SIZES,
    ),
    # The first rows of a copy, alone.
    RandomProgram(
        (Argument("x", "complex128", (2, "n", "m"), "strided", 53),),
        ("v0 = x.reshape(-1, x.shape[-1])", "v1 = v0[: v0.shape[0] // 2]"), ("v1",), (0.0,), SIZES,
    ),
    # A row of one element that is kept where its operand was: computed once.
    RandomProgram(
        (Argument("x", "float64", ("n",), "C", 55),),
        ("v0 = np.cumsum(x, axis=0)", "v1 = np.cos(v0)", "v2 = np.sum(v1, axis=0)"), ("v2", "v1"), (EPSILON, EPSILON),
        ({"n": 1},),
    ),
)  # fmt: skip
