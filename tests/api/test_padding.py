"""``numpy.pad`` in every mode: NumPy's values, jitted and eager on both engines; one program for many sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.oracle import agrees, both_engines
from tests.turns import is_due

pytestmark = pytest.mark.filterwarnings("ignore:.*(Mean of empty|invalid value)")


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Iterator[None]:
    with both_engines():
        yield


def data(dtype: str) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(1).integers(-20, 20, (4, 5))
    return (x + (0.25 if np.dtype(dtype).kind in "fc" else 0)).astype(dtype)


DTYPES = ("int16", "float32", "float64")
EXACT: tuple[Any, ...] = (1, (1, 2), ((2, 4), (0, 1)), ((8, 16), (1, 4)), 0)
"""Widths of ramps whose steps are exact."""
WIDTHS: tuple[Any, ...] = (
    1,
    (1, 2),
    ((2, 3), (0, 1)),
    ((3, 1), (2, 4)),
    ((0, 0), (2, 0)),
    ((7, 13), (1, 20)),
    0,
    {0: 2},
)
MODES: dict[str, tuple[dict[str, Any], ...]] = {
    "edge": ({},), "wrap": ({},), "reflect": ({}, {"reflect_type": "odd"}), "symmetric": ({}, {"reflect_type": "odd"}),
    "linear_ramp": ({}, {"end_values": 3}, {"end_values": ((1, 2), (3, 4))}),
    "maximum": ({}, {"stat_length": 2}, {"stat_length": ((1, 2), (3, 9))}), "minimum": ({}, {"stat_length": (1, 2)}),
    "mean": ({}, {"stat_length": 2}), "median": ({}, {"stat_length": 3}), "constant": ({"constant_values": 7},),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str, dtype: str) -> None:
    """Every option of a mode meets every width, and every dtype: of their combinations one in two."""
    for number, options in enumerate(MODES[mode]):
        for turn, width in enumerate(EXACT if mode == "linear_ramp" else WIDTHS):
            if is_due(DTYPES.index(dtype), number, turn):
                agrees(lambda a, w=width, o=options: np.pad(a, w, mode, **o), data(dtype))


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric", "mean", "linear_ramp"])
def test_of_other_dtypes_and_of_one_element(mode: str) -> None:
    for dtype in ("complex64", "bool", "int64", "float16"):
        agrees(lambda a: np.pad(a, ((2, 3), (1, 1)), mode), np.abs(data(dtype)) if dtype == "bool" else data(dtype))
        agrees(lambda a: np.pad(a[:1, :1], ((2, 3), (1, 1)), mode), data(dtype))


@pytest.mark.parametrize(
    "call",
    [
        lambda a: np.pad(a, 1, "upwards"),
        lambda a: np.pad(a, 1, "edge", constant_values=1),
        lambda a: np.pad(a, -1, "edge"),
        lambda a: np.pad(a, ((1, 2), (3, 4), (5, 6)), "edge"),
        lambda a: np.pad(a[:0], ((1, 0), (0, 0)), "reflect"),
        lambda a: np.pad(a[:0], ((0, 0), (1, 0)), "reflect"),
        lambda a: np.pad(a, 1, "maximum", stat_length=0),
        lambda a: np.pad(a, np.array([1, 2]), "wrap"),
        lambda a: np.pad(a, [[1, 2], [0, 3]], "wrap"),
    ],
)
def test_bad_calls_and_forms_of_widths(call: Any) -> None:
    agrees(call, data("float64"))


def test_a_function_as_mode_is_refused() -> None:
    with pytest.raises(tn.TraceError, match=r"^pad: a function as mode; the name of a mode is needed \(at .*test_padd"):
        tn.jit(lambda a: np.pad(a, 1, lambda *_: None))(data("float64"))


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric", "maximum", "linear_ramp"])
def test_one_program_for_many_sizes(mode: str) -> None:
    jitted = tn.jit(lambda a: np.pad(a, 2, mode))
    for n in (3, 4, 9, 300):
        x = np.random.default_rng(n).normal(size=(n, n + 2))
        np.testing.assert_allclose(jitted(x), np.pad(x, 2, mode), rtol=1e-14)
    assert jitted.cache_info().compiles == 1


def test_widths_are_sizes() -> None:
    """A border of so many elements as an argument says, or as another array has."""
    jitted = tn.jit(lambda a, n: np.pad(a, (n, a.shape[0] - 1), "reflect"))
    for size, n in ((5, 3), (9, 2), (40, 39)):
        x = np.arange(float(size))
        np.testing.assert_array_equal(jitted(x, n), np.pad(x, (n, size - 1), "reflect"))
    assert jitted.cache_info().compiles == 1
    # Wider than the array: gathered back and forth, by a program of its own.
    np.testing.assert_array_equal(jitted(np.arange(4.0), 11), np.pad(np.arange(4.0), (11, 3), "reflect"))
    assert jitted.cache_info().compiles == 2


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_a_border_is_a_part_of_what_reads_it(mode: str) -> None:
    lowered = tn.jit(lambda a: np.pad(a, ((0, 0), (1, 1)), mode).sum(axis=1)).lower(data("float64"))
    assert len(lowered.regions) == 1
