"""Programs over several CPU engines: the same bits, errors, warnings and memory as on one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tenferro as tn
from tenferro.engines.engine import Engine
from tenferro.engines.errors import UnknownEngineError
from tenferro.lowering import simplify
from tenferro.lowering.partition import partition
from tenferro.lowering.stage import stage
from tenferro.tracer.config import config
from tenferro.tracer.errors import BoundsError, LoweringError
from tests.random_programs.generator import RandomProgram, generate
from tests.random_programs.statements import propose
from tests.runtime.agreement import agrees, kinds, plain, x
from tests.runtime.engines import run_on, scattered, several
from tests.table.agreement import bits

NAMES = ("cpu:0", "cpu:1", "cpu:2")


@pytest.fixture(scope="module", autouse=True)
def engines() -> Iterator[list[Engine]]:
    with several(3) as found:
        yield found


# Parts


@st.composite
def programs(draw: st.DrawFn) -> RandomProgram:
    return generate(lambda n: draw(st.integers(0, n - 1)), propose)


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs(), seed=st.integers(0, 2**20))
def test_scattered_programs_have_the_same_bits(program: RandomProgram, seed: int) -> None:
    engines = [tn.default_runtime().engine(n) for n in NAMES]
    jitted = tn.jit(program.function())
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", tn.RecompileWarning)
        for sizes in program.sizes:
            inputs = program.inputs(sizes)
            traced = jitted.trace(*inputs)
            if any(i.kind != "argument" for i in traced.inputs):
                return
            given = [np.asarray(a) for a in inputs]
            whole = run_on(traced, engines[:1], given)
            parts = run_on(scattered(traced, NAMES, seed), engines, given)
            for k, (a, b) in enumerate(zip(parts, whole, strict=True)):
                problem = bits(a, b)
                assert problem is None, f"output {k}, seed {seed}: {problem}\n{program.runnable()}"
                assert a.flags.c_contiguous == b.flags.c_contiguous and a.flags.writeable == b.flags.writeable
            shares = [[np.shares_memory(a, b) for a in (*parts, *given)] for b in parts]
            assert shares == [[np.shares_memory(a, b) for a in (*whole, *given)] for b in whole]


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs(), seed=st.integers(0, 2**20))
def test_parts_form_no_circle(program: RandomProgram, seed: int) -> None:
    """One part for each engine and level; every part reads what inputs and parts of lower levels make, no more."""
    traced = tn.jit(program.function()).trace(*program.inputs(program.sizes[0]))
    staged = stage(simplify(traced, config()))
    choose = np.random.default_rng(seed)
    places = [int(k) for k in choose.integers(0, 3, len(staged.instructions))]
    made = {i.slot.index: -1 for i in staged.inputs}
    seen = set()
    parts = partition(staged, places)
    for part in parts:
        assert not isinstance(part, int)
        assert (part.engine, part.level) not in seen
        seen.add((part.engine, part.level))
        assert all(made[s] < part.level for s in part.reads)
        made.update((s, part.level) for s in part.writes)
    numbers = [n for p in parts if not isinstance(p, int) for n in p.numbers]
    assert sorted(numbers) == list(range(len(staged.instructions)))


def test_values_cross():
    def f(a, b):
        with tn.on("cpu:1"):
            c = a * b
        with tn.on("cpu:2"):
            d = a - b
        return c + d, d

    f1 = agrees(f, x, x + 1)
    # Both inputs lie in memory that all three engines reach; two results cross, one of them is returned from there.
    assert kinds(f1, x, x).count("OperationNode") == 3
    transfers = f1.lower(x, x).schedule.transfers
    assert [(str(t.source), str(t.destination), str(t.bytes)) for t in transfers] == [
        ("cpu:1/host", "cpu:0/host", "8*d0_0"),
        ("cpu:2/host", "cpu:0/host", "8*d0_0"),
    ]


def test_one_engine_for_all_is_flat():
    def f(a, b):
        with tn.on("cpu:1"):
            return b - 2 * a, a

    lowered = agrees(f, x, x + 1).lower(x, x)
    assert lowered.schedule.is_flat and lowered.plan is lowered.plans[0]
    assert [n.engine for n in lowered.schedule.nodes] == [1]


def test_a_mask_selects_on_one_engine_and_its_size_is_used_on_another():
    def f(a):
        with tn.on("cpu:1"):
            chosen = a[a > 2]
        total = chosen.sum() / chosen.shape[0]
        with tn.on("cpu:2"):
            spread = chosen - total
        return spread, np.zeros(chosen.shape) + 1, chosen.shape[0]

    jitted = agrees(f, x)
    for other in (np.array([5.0]), np.arange(100.0), -np.arange(9.0) + 5):
        for a, b in zip(jitted(other), plain(f, other), strict=True):
            np.testing.assert_array_equal(a, b)
    assert jitted.cache_info().compiles == 1


def test_sizes_and_ints():
    def f(a, n):
        with tn.on("cpu:1"):
            b = a * n + a.shape[0]
        return b.reshape(-1, 2) / b.shape[0], np.arange(n) + n, n * 2

    jitted = agrees(f, x, 3)
    for size, n in ((8, 0), (2, 5)):
        for a, b in zip(jitted(np.ones(size), n), plain(f, np.ones(size), n), strict=True):
            np.testing.assert_array_equal(a, b)


def test_views_across_parts():
    """Views of a value of another part are fresh where the function's own are, and share where they share."""

    def f(a):
        with tn.on("cpu:1"):
            m = (a + 1).reshape(2, 3)
        with tn.on("cpu:2"):
            t = m.T
        return m, t, t[0], a[::2], m * 1

    jitted = agrees(f, x)
    m, t, row, every, fresh = jitted(x)
    assert np.shares_memory(m, t) and np.shares_memory(t, row) and np.shares_memory(every, x)
    assert not np.shares_memory(m, fresh)
    m[0, 0] = 99
    assert t[0, 0] == 99 and x[0] == 0


def test_a_fresh_view_shares_nothing():
    def f(a):
        with tn.on("cpu:1"):
            m = (a + 1).reshape(2, 3)
        with tn.on("cpu:2"):
            n = np.ascontiguousarray(m.T)
        return m, n

    m, n = agrees(f, x)(x)
    assert not np.shares_memory(m, n) and n.flags.c_contiguous


def test_outputs_of_every_kind():
    def f(a, b):
        with tn.on("cpu:1"):
            c = a + b
        return c, c, a, 2.5, "text", a.shape[0], c[1:], b[0]

    jitted = tn.jit(f)
    b = x + 1
    c, again, same, number, text, size, part, first = jitted(x, b)
    assert c is again and same is x and (number, text, size) == (2.5, "text", 6)
    assert np.shares_memory(c, part) and first == 1 and c.tolist() == (x + b).tolist()


def test_donated_arguments():
    @tn.jit(donate_argnums=(0,))
    def f(a, b):
        with tn.on("cpu:1"):
            a += b
        with tn.on("cpu:2"):
            a[1:] *= 2
        return a.sum()

    a, expected = x.copy(), x.copy()
    expected += 1
    expected[1:] *= 2
    assert f(a, np.ones(6)) == expected.sum() and a.tolist() == expected.tolist()


def test_a_donated_argument_is_whole_after_a_failure():
    @tn.jit(donate_argnums=(0,))
    def f(a, i):
        a += 1
        with tn.on("cpu:1"):
            return a[i]

    a = x.copy()
    with pytest.raises(BoundsError):
        f(a, np.array([77]))
    assert a.tolist() == x.tolist()


# tn.on


def test_on_nests_and_ends():
    def f(a):
        with tn.on("cpu:1"):
            b = a + 1
            with tn.on("cpu:2"):
                c = b * 2
            d = b - c
        return c + d

    program = agrees(f, x).trace(x)
    assert [o.place for o in program.operations] == ["cpu:1", "cpu:2", "cpu:1", ""]


def test_on_ends_with_an_exception():
    @tn.jit
    def f(a):
        try:
            with tn.on("cpu:1"):
                a = a + 1
                raise KeyError("mine")
        except KeyError:
            return a * 2

    assert [o.place for o in f.trace(x).operations] == ["cpu:1", ""]


def test_on_takes_an_engine_and_refuses_what_is_none(engines):
    @tn.jit
    def f(a):
        with tn.on(engines[1]):
            return a + 1

    assert [o.place for o in f.trace(x).operations] == ["cpu:1"]
    with pytest.raises(UnknownEngineError, match="'cpu:7' is not registered; one of cpu:0, cpu:1, cpu:2"):
        tn.jit(lambda a: on_seven(a))(x)


def on_seven(a):
    with tn.on("cpu:7"):
        return a + 1


# jit(engine=), jit(engines=), x.to


def test_jit_engine(engines):
    f = tn.jit(lambda a: a * 2, engine="cpu:1")
    assert f(x).tolist() == (x * 2).tolist()
    assert f.lower(x).schedule.domains == ("cpu:1",)
    assert tn.jit(lambda a: a * 3, engine=engines[2]).lower(x).schedule.domains == ("cpu:2",)
    with pytest.raises(ValueError, match="engine and engines are both given"):
        tn.jit(lambda a: a, engine="cpu:0", engines=["cpu:1"])
    with pytest.raises(UnknownEngineError):
        tn.jit(lambda a: a + 1, engine="cpu:9")(x)


def test_jit_engines():
    @tn.jit(engines=["cpu:2", "cpu:0"])
    def f(a):
        with tn.on("cpu:0"):
            b = a + 1
        return b * 2

    assert f(x).tolist() == ((x + 1) * 2).tolist()
    assert f.lower(x).schedule.domains == ("cpu:2", "cpu:0")


def test_arrays_on_engines(engines):
    a = tn.asarray(x, engine="cpu:1")
    b = a.to("cpu:2")
    assert (a.device, b.device) == ("cpu:1", "cpu:2") and a.to("cpu:1") is a
    a[0] = 7
    assert b[0] == 0 and x[0] == 7  # asarray shares, to copies
    x[0] = 0
    f = tn.jit(lambda p: p + 1)
    assert f(b).device == "cpu:2" and f.lower(b).schedule.domains == ("cpu:2",)
    with pytest.raises(
        LoweringError, match=r"arguments on cpu:1 and cpu:2; one engine is needed, x.to\(engine\) moves"
    ):
        tn.jit(lambda p, q: p + q)(a, b)
    assert tn.jit(lambda p, q: p + q, engines=["cpu:0"])(a, b).device == "cpu:0"
    with pytest.raises(UnknownEngineError):
        a.to("cpu:9")


def test_arguments_that_are_results_lie_with_the_others():
    a, b = tn.asarray(x, engine="cpu:0"), tn.asarray(x, engine="cpu:1")
    f = tn.jit(lambda p: p, engine="cpu:1")
    assert f(a).device == "cpu:1" and f(a).tolist() == x.tolist() and f(b) is b and f(x) is x
    assert np.shares_memory(np.asarray(f(a)), x)  # as a view that is returned does
    assert f(a.sum()).device == "cpu:1" and f(a.sum())._scalar
    first, doubled, again = tn.jit(lambda p: (p, p * 2, p), engine="cpu:1")(a)
    assert {r.device for r in (first, doubled, again)} == {"cpu:1"} and first is again
    assert tn.jit(lambda p: (p, b))(a)[1].device == "cpu:0"
    given = a.to("cpu:0") + 0

    @tn.jit(engine="cpu:1", donate_argnums=0)
    def written(p):
        p[0] = 9
        return p

    result = written(given)
    assert result.device == "cpu:1" and given[0] == 9 and np.shares_memory(np.asarray(result), np.asarray(given))


IN_PLACE = {
    "setitem": lambda a, b: a.__setitem__(slice(0, 2), b[:2]),
    "setitem by a key": lambda a, b: a.__setitem__(b.astype(np.int64), 0.0),
    "setitem by a mask": lambda a, b: a.__setitem__(b > 2, 0.0),
    "setitem of a list": lambda a, b: a.__setitem__(slice(0, 2), [b[0], b[1]]),
    "iadd": lambda a, b: a.__iadd__(b),
    "out": lambda a, b: np.add(a, a, out=b),
    "where": lambda a, b: np.add(a, a, out=a, where=b > 2),
    "copyto": lambda a, b: np.copyto(a, b),
    "copyto where": lambda a, b: np.copyto(a, a, where=b > 2),
    "add.at": lambda a, b: np.add.at(a, [0, 1], b[:2]),
    "add.at by a key": lambda a, b: np.add.at(a, b.astype(np.int64), 1.0),
    "broadcast_arrays": lambda a, b: np.broadcast_arrays(a, b),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_written_lies_on_one_engine(name):
    a, b = tn.asarray(x.copy(), engine="cpu:0"), tn.asarray(x.copy(), engine="cpu:1")
    with pytest.raises(LoweringError, match=r"arguments on cpu:0 and cpu:1; one engine is needed.*engines.py:\d+\)"):
        IN_PLACE[name](a, b)
    assert a.tolist() == b.tolist() == x.tolist()
    IN_PLACE[name](a, b.to("cpu:0"))


def test_eager_operations_stay_on_their_engine():
    a = tn.asarray(x, engine="cpu:1")
    assert ((a + 1) * 2).device == "cpu:1" and a[1:].device == "cpu:1" and a.sum().device == "cpu:1"
