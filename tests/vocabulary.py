"""The pointwise rows outside ``tracer/ops/pointwise``: (name, operands, kinds of dtypes, how results compare)."""

from __future__ import annotations

from typing import Literal

UNARY = (
    "expm1", "exp2", "log1p", "log2", "log10", "cbrt", "rsqrt", "sinh", "cosh", "tan", "arcsin", "arccos", "arctan",
    "arcsinh", "arccosh", "arctanh",
)  # fmt: skip
"""Elementary functions of one real operand."""
OF_COMPLEX = ("exp2", "log2", "log10", "sinh", "cosh", "tan")
"""Those of complex numbers too."""
VOCABULARY: tuple[tuple[str, Literal[1, 2], str, Literal["bits", "values", "elementary", "larger", "complex"]], ...] = (
    ("floor", 1, "f", "bits"),
    ("ceil", 1, "f", "bits"),
    ("trunc", 1, "f", "bits"),
    ("rint", 1, "fc", "bits"),
    ("sign", 1, "iufc", "complex"),
    ("signbit", 1, "f", "bits"),
    ("copysign", 2, "f", "bits"),
    ("heaviside", 2, "f", "bits"),
    ("nextafter", 2, "f", "bits"),
    ("left_shift", 2, "iu", "bits"),
    ("right_shift", 2, "iu", "bits"),
    ("fmod", 2, "iuf", "bits"),
    *((name, 1, "fc" if name in OF_COMPLEX else "f", "elementary") for name in UNARY),
    ("logaddexp", 2, "f", "larger"),
    ("logaddexp2", 2, "f", "larger"),
    ("hypot", 2, "f", "elementary"),
    ("arctan2", 2, "f", "elementary"),
)
