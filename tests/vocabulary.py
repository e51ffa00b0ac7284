"""The pointwise rows outside ``tracer/ops/pointwise``: (name, operands, kinds of dtypes, how results compare)."""

from __future__ import annotations

from typing import Literal

VOCABULARY: tuple[tuple[str, Literal[1, 2], str, Literal["bits", "values", "elementary", "complex"]], ...] = (
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
)
