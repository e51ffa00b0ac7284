"""Extension families: inference, executors and their caches, effects, memory, nesting."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.errors import MissingExtensionError, ProviderContractError
from tenferro.runtime import Configuration, ExtensionModule, Family, FamilyCache, Lent
from tenferro.tracer.errors import DivisionError, ShapeError
from tests.runtime.engines import several

log: list[Any] = []
cached: list[str] = []


def same(types, params):
    return (types[0],)


def noted(x, tag=0):
    log.append(tag)
    return x


def edges(types, params):
    from dataclasses import replace

    if types[0].rank != 1:
        raise ShapeError(f"test.edges.v1: x of rank {types[0].rank}; rank 1 is needed")
    return (replace(types[0], shape=(params["n"],)), replace(types[0], shape=(params["n"],)))


def scaled(lent: Lent, x, factor=1):
    def make() -> float:
        cached.append(lent.engine.id)
        return float(factor)

    return x * lent.cache.get(factor, make)


note = Family("test.note.v1", same, noted, ordered=True)
first_and_last = Family("test.edges.v1", edges, lambda x, n: (x[:n], x[-n:]))
scale = Family("test.scale.v1", same, lambda x, factor=1: x * factor)
nested = Family("test.nested.v1", same, lambda x: x + 1)


@tn.jit
def _inner(x):
    with tn.on("cpu:1"):
        y = x + 0.5
    with tn.on("cpu:0"):
        z = x - x
    return y + z + 0.5


MODULE = ExtensionModule(
    "test",
    (note, first_and_last, scale, nested),
    {("test.scale.v1", "cpu"): scaled, ("test.nested.v1", "cpu"): lambda lent, x: _inner(x)},
)


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    with several(2):
        runtime = tn.default_runtime()
        runtime.reconfigure(lambda c: c.install_extension(MODULE))
        yield

        def remove(configuration: Configuration) -> None:
            configuration.modules.remove(MODULE)

        runtime.reconfigure(remove)


@pytest.fixture(autouse=True)
def fresh() -> None:
    log.clear()
    cached.clear()
    tn.default_runtime().clear_caches()


x = np.arange(5.0)


def test_a_family_is_a_function_of_arrays_traced_and_eager():
    def f(a, n):
        first, last = first_and_last(a * 2, n=n)
        return first + last, n

    total, n = tn.jit(f)(x, 2)
    assert total.tolist() == [6, 10] and n == 2
    assert tn.jit(f)(x, 3)[0].tolist() == [4, 8, 12]
    a, b = first_and_last(x, n=1)
    assert (a.tolist(), b.tolist()) == ([0], [4]) and type(a) is np.ndarray
    wrapped, _ = first_and_last(tn.asarray(x), n=1)
    assert isinstance(wrapped, tn.Array)


def test_a_family_may_be_jitted_itself():
    plain = Family("test.plain.v1", same, lambda a: a * 1)
    module = ExtensionModule("plain", (plain,))
    with pytest.raises(MissingExtensionError, match=r"test.plain.v1 is not installed.*test_extensions.py:\d+\)"):
        tn.jit(plain)(x)
    tn.default_runtime().reconfigure(lambda c: c.install_extension(module))
    jitted = tn.jit(plain)
    assert jitted(x).tolist() == x.tolist()
    assert plain(x).tolist() == x.tolist()  # what the family keeps is no capture
    assert jitted(x).tolist() == x.tolist() and jitted.cache_info().compiles == 1
    assert tn.jit(scale, static_argnames="factor")(x, factor=3).tolist() == (x * 3).tolist()
    assert [r.tolist() for r in tn.jit(first_and_last)(x, n=2)] == [[0, 1], [3, 4]]
    tn.default_runtime().reconfigure(lambda c: c.modules.remove(module))


def test_inference_errors_are_the_familys_own():
    with pytest.raises(ShapeError, match="test.edges.v1: x of rank 2; rank 1"):
        tn.jit(lambda a: first_and_last(a, n=1))(np.ones((2, 2)))


def installed_alone(family, executors=None):
    module = ExtensionModule("alone", (family,), executors or {})
    tn.default_runtime().reconfigure(lambda c: c.install_extension(module))
    return module


@pytest.mark.parametrize("found", [None, "type", 3, ("float64",)], ids=repr)
def test_what_is_inferred_must_be_a_tuple_of_types(found):
    def infer(types, params):
        return types[0] if found == "type" else found

    family = Family("test.wrong.v1", infer, lambda a: a)
    shown = r"ArrayType\(.*\)" if found == "type" else re.escape(repr(found))
    text = rf"^test.wrong.v1: infer gave {shown}; a tuple of ArrayType is needed \(at .*test_extensions.py:\d+\)$"
    for call in (tn.jit(lambda a: family(a)), family):
        with pytest.raises(ProviderContractError, match=text):
            call(x)


def test_a_reference_must_return_something():
    family = Family("test.nothing.v1", same, lambda a: None)
    module = installed_alone(family)
    with pytest.raises(ProviderContractError, match=r"^test.nothing.v1: a result that is None; .*extensions.py:\d+\)$"):
        tn.jit(lambda a: family(a))(x)
    tn.default_runtime().reconfigure(lambda c: c.modules.remove(module))


@pytest.mark.parametrize("by", ["reference", "executor"])
@pytest.mark.parametrize("kind", [KeyError, ValueError, ZeroDivisionError])
def test_what_a_family_raises_is_its_own_with_a_note_of_the_line(by, kind):
    error = kind("mine")

    def fail(*args):
        raise error

    family = Family("test.raises.v1", same, fail)
    module = installed_alone(family, {("test.raises.v1", "cpu"): fail} if by == "executor" else None)

    def far(a):
        with tn.on("cpu:1"):
            b = family(a * 2)
        return b + 1

    jitted, elsewhere = tn.jit(lambda a: family(a) + 1), tn.jit(far)
    for call in (jitted, jitted, elsewhere, family):
        with pytest.raises(kind) as caught:
            call(x)
        assert caught.value is error
    # One for each line; the eager call's error has one already.
    notes = [n for n in error.__notes__ if " (at " in n]
    assert len(notes) == 2 and all(
        re.fullmatch(rf"test.raises.v1: raised by its {by} \(at .*test_extensions.py:\d+\)", n) for n in notes
    )
    del error.__notes__
    with pytest.raises(kind):
        family(x)
    assert re.fullmatch(r"test.raises.v1: called \(at .*test_extensions.py:\d+\)", error.__notes__[-1])
    tn.default_runtime().reconfigure(lambda c: c.modules.remove(module))


def test_parameters_must_be_hashable():
    with pytest.raises(TypeError, match=r"test.scale.v1: factor is a list; a hashable value is needed.*\(at .*:\d+\)"):
        scale(x, factor=[2])
    with pytest.raises(TypeError, match="test.scale.v1: factor is a dict"):
        tn.jit(lambda a: scale(a, factor={}))(x)


def test_a_family_that_is_not_installed_has_the_users_line():
    lost = Family("test.lost.v1", same, lambda a: a)
    with pytest.raises(MissingExtensionError, match=r"test.lost.v1 is not installed.*test_extensions.py:\d+\)"):
        tn.jit(lambda a: lost(a))(x)


def test_caches_are_lent_by_engine():
    def f(a):
        with tn.on("cpu:1"):
            b = scale(a, factor=3)
        return b + scale(a, factor=3)

    jitted = tn.jit(f)
    for _ in range(3):
        assert jitted(x).tolist() == (x * 6).tolist()
    assert sorted(cached) == ["cpu:0", "cpu:1"]
    tn.default_runtime().clear_caches()
    jitted(x)
    assert len(cached) == 4


def test_the_cache_is_bounded():
    cache = FamilyCache(max_entries=2)
    made: list[int] = []
    for k in (1, 2, 1, 3, 1, 2):
        cache.get(k, lambda k=k: made.append(k) or k)  # type: ignore[misc]
    assert made == [1, 2, 3, 2] and len(cache) == 2


@pytest.mark.parametrize("places", [("cpu:0", "cpu:0", "cpu:0"), ("cpu:1", "cpu:0", "cpu:1"), ("", "", "")])
def test_effects_keep_their_order(places):
    """The first call waits for a sum; the second could run at once."""

    @tn.jit
    def f(a, b):
        doubled = a * 2
        total = doubled.sum()
        with place(places[0]):
            p = note(total, tag=1)
        with place(places[1]):
            q = note(b, tag=2)
        with place(places[2]):
            note(b, tag=3)
            note(b, tag=3)
        return p, q, doubled - total

    for _ in range(3):
        p, q, r = f(x, x + 1)
        assert (float(p), q.tolist(), r.tolist()) == (20, (x + 1).tolist(), (2 * x - 20).tolist())
    assert log == [1, 2, 3, 3] * 3


def place(name):
    from contextlib import nullcontext

    return tn.on(name) if name else nullcontext()


def test_effects_are_not_repeated_to_tell_of_an_error():
    @tn.jit
    def f(a, b):
        c = note(a, tag=1)
        d = c // b
        note(d, tag=2)
        return d

    a, b = np.array([4, 5]), np.array([2, 0])
    with pytest.warns(RuntimeWarning, match="dividend 5"):
        assert f(a, b).tolist() == [2, 0]
    assert log == [1, 2]
    log.clear()
    with np.errstate(divide="raise"), pytest.raises(DivisionError, match="dividend 5"):
        f(a, b)
    assert log == [1]


def test_a_result_on_the_operands_memory_is_copied():
    """``note`` returns its operand: neither a later write of the program nor the caller's reaches the argument."""

    @tn.jit
    def f(a):
        b = note(a)
        b[0] = 77
        return b

    given = x.copy()
    assert f(given)[0] == 77 and given[0] == 0
    out = tn.jit(lambda a: note(a))(given)
    out[1] = 77
    assert given[1] == 1


def test_an_executor_may_run_programs_of_several_engines():
    """It runs on an engine's worker, and so does what it calls: nothing waits for itself."""

    @tn.jit
    def f(a):
        with tn.on("cpu:1"):
            b = nested(a)
        return nested(b) + nested(a)

    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(f(x).tolist())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == [(2 * x + 3).tolist()] * 4


def test_parameters_that_python_calls_equal_are_different():
    def typed(types, params):
        from tenferro.tracer.program import ArrayType

        return (ArrayType(np.result_type(types[0].dtype, params["factor"]), types[0].shape),)

    family = Family("test.typed.v1", typed, lambda a, factor: a * factor)
    module = ExtensionModule("typed", (family,))
    tn.default_runtime().reconfigure(lambda c: c.install_extension(module))
    a = np.arange(3)

    @tn.jit
    def f(a):
        return family(a, factor=2), family(a, factor=2.0), family(a, factor=1), family(a, factor=True)

    assert [r.dtype.kind for r in f(a)] == ["i", "f", "i", "i"]
    assert [family(a, factor=k).dtype.kind for k in (2, 2.0, 2)] == ["i", "f", "i"]
    assert tn.jit(lambda a: family(a, factor=3))(a).dtype.kind == "i"
    assert tn.jit(lambda a: family(a, factor=3.0))(a).dtype.kind == "f"
    tn.default_runtime().reconfigure(lambda c: c.modules.remove(module))
