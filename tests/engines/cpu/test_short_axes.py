"""Reductions of short rows: kernels made for one length have the bits of the general kernel and of the tree, however
the rows lie, and there are few of them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import kernel as kernels, toolchain
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.engine import Executable
from tenferro.engines.reference import ReferenceEngine
from tenferro.lowering import lower
from tenferro.tracer.config import config
from tests.running import CPU_WAYS, Way, outputs_of
from tests.table.agreement import bits
from tests.turns import is_due
from tests.values import uniform

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Any]
COLUMNS = 1031
DTYPES = (
    "float32",
    "float64",
    "float16",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
)
LENGTHS = (*range(1, 43), 47, 63, 64, 65)
SOME_LENGTHS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 42, 47, 64, 65)
PLACES = ("apart", "records", "gaps", "steps", "backwards")


def rows(n: int, dtype: str, columns: int = COLUMNS) -> Array:
    """``columns`` rows of n elements, of which some are zeros of both signs, NaNs and infinities; whole rows too."""
    x = uniform((n, columns), dtype, n)
    if x.dtype.kind in "fc":
        rng = np.random.default_rng(n)
        for special in (np.nan, -0.0, 0.0, np.inf, -np.inf):
            x[rng.random(x.shape) < 0.01] = special
        x[:, 40:60], x[:, 60:80], x[:, 100] = -0.0, 0.0, np.nan
    return x


def placed(x: Array, place: str) -> Array:
    """The same elements, rows along axis 0, in another order in memory."""
    n, columns = x.shape
    match place:
        case "apart":
            return np.ascontiguousarray(x)
        case "records":
            return np.ascontiguousarray(x.T).T
        case "gaps":
            wide = np.zeros((columns, n + 3), x.dtype)
            wide[:, 1 : 1 + n] = x.T
            return wide[:, 1 : 1 + n].T
        case "steps":
            wide = np.zeros((n, 2 * columns), x.dtype)
            wide[:, ::2] = x
            return wide[:, ::2]
        case "backwards":
            return np.ascontiguousarray(x.T[:, ::-1]).T[::-1]
        case _:
            raise ValueError(place)


def added(x: Array) -> Any:
    return x.sum(axis=0), x.mean(axis=0)


def multiplied(x: Array) -> Any:
    return x.prod(axis=0)


def extremes(x: Array) -> Any:
    return x.max(axis=0), x.argmin(axis=0)


def largest(x: Array) -> Any:
    return x.max(axis=0), x.min(axis=0)


def spread(x: Array) -> Any:
    return x.var(axis=0)


def softmax(x: Array) -> Any:
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def unit(x: Array) -> Any:
    return x / np.sqrt((x * x).sum(axis=0))


def functions(dtype: str) -> list[Function]:
    match np.dtype(dtype).kind:
        case "c":
            return [added, multiplied, largest]
        case "f" if dtype != "float16":
            return [added, multiplied, extremes, spread]
        case _:
            return [added, extremes]


def exact(function: Function, dtype: str) -> bool:
    """Whether NumPy's own functions, which the reference engine calls, leave nothing open: it may give either zero for
    the larger of two, and rounds products of complex numbers its own way."""
    return function in (added, spread) or (function is multiplied and dtype[0] == "f") or np.dtype(dtype).kind in "iub"


def compiled(function: Function, x: Array, tier: str = "0") -> Executable:
    return CpuEngine(tier=tier).compile(lower(tn.jit(function).trace(x), config()))


def reference(function: Function, x: Array) -> Executable:
    return ReferenceEngine().compile(lower(tn.jit(function).trace(x), config()))


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Executable, Array], list[Array]]]:
    """Runs an executable with kernels for every length alone."""

    def run(made: Executable, x: Array) -> list[Array]:
        with monkeypatch.context() as patched:
            patched.setattr(kernels, "SHORT_KERNELS", 0)
            return outputs_of(made, [x])

    monkeypatch.setattr(kernels, "SHORT_KERNELS", 40)
    yield run


def agree(actual: list[Array], expected: list[Array], what: str) -> None:
    for a, e in zip(actual, expected, strict=True):
        problem = bits(a, e)
        assert problem is None, f"{what}: {problem}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", ["apart", "records"])
def test_every_length(dtype: str, place: str, general: Any) -> None:
    """The general kernel's bits, at one and two threads, and the reference engine's where NumPy's are fixed. Every
    length of float32, of other dtypes one in two of those named."""
    for number, function in enumerate(functions(dtype)):
        first = placed(rows(2, dtype), place)
        short, other, oracle = compiled(function, first), compiled(function, first), reference(function, first)
        lengths = [n for k, n in enumerate(SOME_LENGTHS) if is_due(DTYPES.index(dtype), PLACES.index(place), number, k)]
        for n in LENGTHS if dtype == "float32" else lengths:
            x = placed(rows(n, dtype), place)
            expected = general(other, x)
            for threads in (1, 2):
                with tn.threads(threads):
                    agree(outputs_of(short, [x]), expected, f"{function.__name__}, n = {n}, {threads} threads")
            if exact(function, dtype):
                agree(expected, outputs_of(oracle, [x]), f"{function.__name__}, n = {n}, reference")
        assert short.kernels > other.kernels


@pytest.mark.parametrize("function", [softmax, unit, added, extremes])
@pytest.mark.parametrize("place", PLACES)
def test_places_in_memory(function: Function, place: str, general: Any) -> None:
    """Rows that go out again, wherever they came from."""
    for dtype in ("float32", "float64"):
        made = compiled(function, placed(rows(2, dtype), place))
        for n in (2, 3, 5, 7, 8, 13, 16, 24, 31, 32):
            x = rows(n, dtype)
            expected = general(compiled(function, x), x)
            agree(outputs_of(made, [placed(x, place)]), expected, f"{dtype}, n = {n}")


@pytest.mark.parametrize("way", CPU_WAYS)
@pytest.mark.parametrize("place", ["apart", "records", "gaps"])
def test_vector_widths_and_levels(way: str, place: str, general: Any) -> None:
    """Each length of half of the functions and dtypes, in turns."""
    place_, dtypes = CPU_WAYS.index(way) + PLACES.index(place), ("float32", "float64", "complex64", "uint8", "float16")
    for number, dtype in enumerate(dtypes if not way.startswith("128") else dtypes[:4]):
        for turn, function in enumerate(functions(dtype)[:2]):
            for k, n in enumerate((3, 7, 16)):
                if not is_due(place_, number, turn, k):
                    continue
                x = placed(rows(n, dtype), place)
                expected = general(compiled(function, x), x)
                agree(outputs_of(Way(tn.jit(function).trace(x), way), [x]), expected, f"{function.__name__}, n = {n}")


@pytest.mark.parametrize("place", PLACES)
def test_every_number_of_columns(place: str, general: Any) -> None:
    """What is left of a tile is one vector in a pad: all lengths of it, and of none."""
    for n in (3, 5, 8, 13):
        x = rows(n, "float32", 9000)
        made, alone = compiled(unit, placed(x, place)), compiled(unit, x)
        expected = general(alone, x)[0]
        for columns in (*range(1024, 1090), 4095, 4096, 4097, 8191, 8192, 8193):
            part = placed(x[:, 9000 - columns :], place)
            agree(outputs_of(made, [part]), [expected[:, 9000 - columns :]], f"n = {n}, {columns} columns")


def test_outer_loops_and_other_operands() -> None:
    """Several outer loops; operands that stand still along the columns, along the rows, or both."""
    rng = np.random.default_rng(0)
    x, weights, shift = rng.random((7, 5, 300)), rng.random((1, 5, 1)), rng.random((1, 1, 300))
    f = tn.jit(lambda x, w, s: ((x * w - s).sum(axis=1), x - (x * w).max(axis=1, keepdims=True) + s))
    for actual, expected in zip(f(x, weights, shift), f.__wrapped__(x, weights, shift), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-13)
    image, gains = rng.random((40, 50, 3)), rng.random(3)
    g = tn.jit(lambda x, w: (x * w).sum(axis=-1))
    np.testing.assert_allclose(g(image, gains), (image * gains).sum(axis=-1), rtol=1e-14)


def test_stores_into_a_part_and_checks() -> None:
    def scaled(x: Array, d: Array) -> Array:
        out = np.zeros_like(x)
        out[1:-1] = (x // d.sum(axis=-1, keepdims=True))[1:-1]
        return out

    f = tn.jit(scaled)
    x, d = (np.random.default_rng(k).integers(1, 100, (2000, 3)) for k in (1, 2))
    np.testing.assert_array_equal(f(x, d), scaled(x, d))
    d[1234] = [3, -3, 0]
    with pytest.warns(RuntimeWarning, match="divisor 0 under"):
        f(x, d)


class Guarded:
    """Memory that ends where no page is: reading one byte past it ends the process."""

    def __init__(self) -> None:
        self.page = mmap.PAGESIZE
        self.size = 64 * self.page
        self._memory = mmap.mmap(-1, self.size + self.page)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._protect(0)

    def _protect(self, flags: int) -> None:
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        assert protect(ctypes.c_void_p(self._address + self.size), ctypes.c_size_t(self.page), flags) == 0

    def last(self, x: Array) -> Array:
        """A copy of x whose last element is the last before the gap."""
        held = np.frombuffer(self._memory, np.uint8)[self.size - x.nbytes : self.size].view(x.dtype).reshape(x.shape)
        held[...] = x
        return held


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "complex128"])
def test_nothing_is_read_past_the_end(dtype: str) -> None:
    memory = Guarded()
    for n in (3, 5, 7, 11, 13, 15):
        for columns in (1024, 1040, 1055):
            x = memory.last(uniform((columns, n), dtype, n))
            for part in (x, x[:, 1:], x[:, -2:]):
                made = compiled(lambda x: x.sum(axis=1), part)
                want = outputs_of(reference(lambda x: x.sum(axis=1), part), [part])
                agree(outputs_of(made, [part]), want, f"{part.shape} of {n}")


def test_few_kernels_for_short_rows_and_one_for_long() -> None:
    f = tn.jit(lambda x: np.exp(x).sum(axis=0) * 3 + 1)
    for n in range(2, 70):
        x = np.random.default_rng(n).random((n, 1100))
        np.testing.assert_allclose(f(x), np.exp(x).sum(axis=0) * 3 + 1, rtol=1e-13)
    assert f.cache_info().kernels <= kernels.SHORT_KERNELS + 1
    g = tn.jit(lambda x: np.exp(x).sum(axis=0) * 5 - 1)
    for n in range(65, 90):
        g(np.ones((n, 1100)))
    assert g.cache_info().kernels == 1


def test_long_code_is_left_to_the_general_kernel() -> None:
    def f(x: Array) -> Any:
        return sum(np.exp(x * k) * np.sin(x + k) for k in range(12)).sum(axis=0)

    for n in (2, 30):
        x = np.random.default_rng(n).random((n, 1100))
        np.testing.assert_allclose(tn.jit(f)(x), f(x), rtol=1e-12)
    made = compiled(f, np.ones((30, 1100)))
    made.run([np.ones((30, 1100))])
    (texts,) = made.kernel_texts().values()
    assert len(texts["llvm"]) < 200_000


def test_few_rows_get_such_a_kernel_once_they_are_hot():
    """At level 2 from three rows on; the bits are those of the kernel before."""
    from tenferro.engines.cpu.engine import CpuEngine
    from tenferro.runtime import Runtime, signature_of, target_of

    def f(x):
        return np.tanh(x - x.sum(axis=1, keepdims=True) * 0.01), x.max(axis=0)

    for rows in (1, 2, 3, 8, 40):
        for length in (2, 3, 8):
            x = np.random.default_rng(rows * length).standard_normal((rows, length)).astype(np.float32)
            found = []
            for tier in ("0", "2"):
                engine = CpuEngine(9, tier=tier)
                runtime = Runtime.builder().register_engine(engine).build()
                program = tn.jit(f).trace(x)
                prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
                found.append([y.tobytes() for y in runtime.run([engine], prepared, [x]).outputs])
                kernels = prepared.flat.table.kernels()
                if tier == "2" and rows >= 3:
                    assert any(k.variant.short == length for k in kernels)
                if tier == "0":
                    assert not any(k.variant.short for k in kernels)
            assert found[0] == found[1]
