"""What providers are told, how often they are asked, and what happens to those who ask wrongly."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tenferro as tn
from tenferro.engines.errors import ConfigurationError, ProviderContractError
from tenferro.runtime import (
    ExtensionModule,
    Family,
    Limits,
    Need,
    Policy,
    PrepareOptions,
    Requirement,
    Signature,
    Specializer,
)  # fmt: skip
from tenferro.runtime.specialization import MOST_ALIGNED, NOTHING, Known, longest_chain, projection
from tests.runtime.engines import several


def signature(x: Any) -> Signature:
    return Signature.of(x, "cpu", "cpu:0")


requirements = st.builds(
    lambda dtype, rank, axes, placement, layout, alignment: Requirement(
        dtype, rank, axes if rank else frozenset(), placement, layout if rank else "", alignment
    ),
    st.booleans(),
    st.booleans(),
    st.frozensets(st.integers(0, 2)),
    st.sampled_from(["", "hardware", "engine"]),
    st.sampled_from(["", "class", "strides"]),
    st.integers(0, MOST_ALIGNED),
)


def rows() -> list[Signature]:
    base = np.arange(120.0).reshape(4, 5, 6)
    arrays = (base, base.astype("f4"), base[::2], base.transpose(2, 0, 1), np.asfortranarray(base), base[:, :2])
    return [signature(x) for x in arrays]


@given(requirements, requirements)
def test_who_asks_for_more_tells_more_apart(a, b):
    """Monotone: what a smaller requirement tells apart, a larger one does."""
    if not a >= b:
        return
    for x in rows():
        for y in rows():
            if projection(b, x) != projection(b, y):
                assert projection(a, x) != projection(a, y)
        assert longest_chain([a], [x]) <= longest_chain([b], [x])
        if a != b:
            assert longest_chain([a], [x]) < longest_chain([b], [x])


@given(requirements, requirements, requirements)
def test_requirements_are_partly_ordered(a, b, c):
    assert a >= NOTHING and a >= a
    assert not (a >= b and b >= a) or a == b
    assert not (a >= b and b >= c) or a >= c


def test_nothing_is_known_that_was_not_asked_for():
    x = np.ones((3, 4), np.float32)
    assert projection(NOTHING, signature(x)) == Known()
    full = Requirement(True, True, frozenset({1}), "engine", "strides", 4)
    known = projection(full, signature(x))
    assert (known.dtype, known.rank, known.sizes, known.placement) == (x.dtype, 2, ((1, 4),), "cpu:0")
    assert (known.layout, known.strides, known.alignment) == ("c", (16, 4), 4)
    assert known.size(1) == 4 and known.size(0) is None
    assert projection(Requirement(placement="hardware"), signature(x)).placement == "cpu"


@pytest.mark.parametrize(
    ("x", "layout"),
    [
        (np.ones((3, 4)), "c"),
        (np.ones((3, 4)).T, "f"),
        (np.ones((3, 4))[:, ::2], "strided"),
        (np.ones(()), "c"),
        (np.ones((0, 3)), "c"),
        (2.5, "c"),
    ],
    ids=str,
)
def test_signatures_of_arrays(x, layout):
    found = signature(x)
    assert found.layout == layout and found.shape == np.shape(x)
    assert 0 <= found.alignment <= MOST_ALIGNED


def test_alignment_is_known_up_to_what_was_asked():
    raw = np.zeros(4096 + 64, np.uint8)
    start = -raw.ctypes.data % 4096
    for offset, log2 in ((0, 12), (8, 3), (32, 5), (1, 0)):
        found = signature(raw[start + offset :][:8])
        assert found.alignment == log2
        assert projection(Requirement(alignment=4), found).alignment == min(4, log2)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"axes": {0}}, "axes without rank"),
        ({"layout": "strides"}, "strides without rank"),
        ({"rank": True, "axes": {-1}}, "one of axes is -1; 0 or more is needed"),
        ({"axes": {"a"}}, "one of axes is 'a' of class str; an int is needed"),
        ({"rank": True, "axes": {1.5}}, "one of axes is 1.5 of class float"),
        ({"rank": True, "axes": {True}}, "one of axes is True of class bool"),
        ({"rank": True, "axes": [[1]]}, r"one of axes is \[1\] of class list"),
        ({"rank": True, "axes": 1}, "axes is 1 of class int; a set of ints is needed"),
        ({"rank": True, "axes": "01"}, "axes is '01' of class str; a set of ints is needed"),
        ({"rank": "yes"}, "rank is 'yes'; True or False is needed"),
        ({"dtype": np.float64}, "dtype is <class 'numpy.float64'>; True or False is needed"),
        ({"alignment": 1.5}, "alignment is 1.5 of class float; an int is needed"),
        ({"alignment": -1}, "alignment is -1; 0 or more is needed"),
        ({"alignment": 13}, "alignment 13"),
        ({"placement": "gpu"}, "'gpu'"),
        ({"layout": "fortran"}, "'fortran'"),
    ],
)
def test_requirements_that_are_none(wrong, text):
    with pytest.raises(ConfigurationError, match=text):
        Requirement(**wrong)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Limits(entries="x"), "PreparedCache: entries is 'x' of class str; an int is needed"),
        (lambda: Limits(queued=None), "PreparedCache: queued is None of class NoneType; an int is needed"),
        (lambda: Policy(max_transfer_bytes="5"), "policy: max_transfer_bytes is '5' of class str; an int is needed"),
        (lambda: Policy(max_placements=0), "policy: max_placements is 0; at least 1 is needed"),
        (lambda: PrepareOptions(in_flight="queue"), "prepare: in_flight is 'queue'; 'wait' or 'refuse' is needed"),
    ],
)
def test_numbers_of_configurations(make, text):
    with pytest.raises(ConfigurationError, match=f"^{text}$"):
        make()


# -- providers ---------------------------------------------------------------------------------------------------------


class Recorder:
    """A provider that needs the size of axis 0, and asks for it in two steps. ``asked``: what it knew each time."""

    def __init__(self) -> None:
        self.asked: list[Known] = []

    def __call__(self, known: tuple[Known, ...]) -> Any:
        (x,) = known
        self.asked.append(x)
        if x.rank is None:
            return Need(Requirement(rank=True))
        if x.size(0) is None:
            return Need(Requirement(rank=True, axes=frozenset({0})))
        return f"for {x.size(0)}"


def test_a_provider_is_asked_once_for_each_projection():
    recorder, answers = Recorder(), Specializer[str]("test")

    def find(x):
        return answers.find("key", [signature(x)], recorder)

    assert find(np.ones((3, 9))) == "for 3"
    assert [k.rank for k in recorder.asked] == [None, 2, 2]
    assert find(np.ones((3, 8), np.float32)) == "for 3"  # neither other sizes nor dtypes were asked for
    assert len(recorder.asked) == 3
    assert find(np.ones((4, 9))) == "for 4" and len(recorder.asked) == 4  # the requests are remembered
    assert find(np.ones(4)) == "for 4" and len(recorder.asked) == 6  # of another rank
    assert answers.find("other", [signature(np.ones(4))], recorder) == "for 4" and len(recorder.asked) == 9
    answers.clear()
    assert len(answers) == 0


def test_threads_ask_once():
    recorder, answers = Recorder(), Specializer[str]("test")
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(answers.find("", [signature(np.ones(3))], recorder)))
        for _ in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == ["for 3"] * 8 and len(recorder.asked) == 3


@pytest.mark.parametrize(
    ("provide", "text"),
    [
        (lambda known: Need(NOTHING), "does not widen"),
        (lambda known: Need(Requirement(dtype=True)), "does not widen"),
        (
            lambda known: Need(Requirement(rank=True) if known[0].dtype else Requirement(dtype=True)),
            "does not widen",
        ),
        (lambda known: Need(), "0 for 1 operands"),
        (lambda known: Need(Requirement(dtype=True), NOTHING), "2 for 1 operands"),
        (lambda known: Need("everything"), "a Requirement for each"),
        (lambda known: Need(Requirement(rank=True, axes=frozenset({7}))), "axis 7 of an operand of rank 1"),
    ],
)
def test_requests_against_the_contract(provide, text):
    with pytest.raises(ProviderContractError, match=text):
        Specializer[str]("test").find("", [signature(np.ones(3))], provide)


def test_requests_are_bounded():
    def align(known: tuple[Known, ...]) -> Any:
        return Need(Requirement(alignment=(known[0].alignment or 0) + 1))

    page = np.zeros(8192, np.uint8)
    page = page[-page.ctypes.data % 4096 :][:8]
    with pytest.raises(ProviderContractError, match=r"asks for more without end; \d+ requests can be"):
        Specializer[str]("test", most=5).find("", [signature(page)], align)


def test_failures_of_a_provider_come_again_each_time():
    calls = []

    def provide(known: tuple[Known, ...]) -> Any:
        calls.append(known)
        raise OSError("no plan")

    answers = Specializer[str]("test")
    for _ in range(2):
        with pytest.raises(OSError, match="no plan"):
            answers.find("", [signature(np.ones(3))], provide)
    assert len(calls) == 2


# -- families ----------------------------------------------------------------------------------------------------------

asked: list[tuple[Any, ...]] = []


def same(types, params):
    return (types[0],)


def provide_scaled(lent, known, factor=1):
    asked.append((lent.engine.id, known[0].dtype, factor))
    if known[0].dtype is None:
        return Need(Requirement(dtype=True))
    typed = known[0].dtype.type(factor)
    return lambda x, factor=1: x * typed


scaled = Family("test.provided.v1", same, lambda x, factor=1: x * factor)
wrong = Family("test.wrongly_provided.v1", same, lambda x: x)
MODULE = ExtensionModule(
    "provided",
    (scaled, wrong),
    providers={
        ("test.provided.v1", "cpu"): provide_scaled,
        ("test.wrongly_provided.v1", "cpu"): lambda lent, known: "no executor",
    },
)


@pytest.fixture
def installed():
    with several(2):
        runtime = tn.default_runtime()
        runtime.reconfigure(lambda c: c.install_extension(MODULE))
        asked.clear()
        yield
        runtime.reconfigure(lambda c: c.modules.remove(MODULE))


@pytest.mark.usefixtures("installed")
def test_a_familys_provider_serves_calls():
    f = tn.jit(lambda x: scaled(np.sqrt(x), factor=3) + 1)
    x = np.arange(4.0)
    for size in (4, 7, 2):
        y = np.arange(float(size))
        np.testing.assert_array_equal(f(y), np.sqrt(y) * 3 + 1)
    assert asked == [("cpu:0", None, 3), ("cpu:0", x.dtype, 3)]
    np.testing.assert_array_equal(f(x.astype("f4")), np.sqrt(x.astype("f4")) * 3 + 1)
    assert asked[2:] == [("cpu:0", np.dtype("f4"), 3)]
    np.testing.assert_array_equal(scaled(x, factor=2), x * 2)
    assert asked[3:] == [("cpu:0", None, 2), ("cpu:0", x.dtype, 2)]
    tn.default_runtime().clear_caches()
    f(x)
    assert len(asked) == 7


@pytest.mark.usefixtures("installed")
def test_each_engine_asks_its_own():
    @tn.jit
    def f(x):
        with tn.on("cpu:1"):
            return scaled(x, factor=5)

    assert f(np.arange(3.0)).tolist() == [0, 5, 10]
    assert {name for name, *_ in asked} == {"cpu:1"}


@pytest.mark.usefixtures("installed")
def test_a_provider_must_give_an_executor():
    with pytest.raises(ProviderContractError, match="gave a str; an executor or a Need is needed"):
        wrong(np.ones(3))
    assert scaled(np.ones(2), factor=2).tolist() == [2, 2]


def test_modules_with_two_ways_are_refused():
    with pytest.raises(ConfigurationError, match="an executor and a provider on cpu"):
        ExtensionModule(
            "two", (scaled,), {(scaled.name, "cpu"): lambda lent, x: x}, providers={(scaled.name, "cpu"): same}
        )
    with pytest.raises(ConfigurationError, match="which it does not bring"):
        ExtensionModule("other", (scaled,), providers={("test.other.v1", "cpu"): same})
