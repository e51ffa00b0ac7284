"""``tn.assert_budget``: what is within its bounds passes; what is not is named with its number, cause and line."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tenferro as tn
from tests.runtime.engines import several

X = np.linspace(0.5, 1, 100)


def scores(x, m):
    e = np.exp(x)
    total = np.cumsum(e * 2)
    return np.sort(total) + m.sum(), m @ m


FIRST = scores.__code__.co_firstlineno
M = np.ones((3, 3))


def broken(f, args, **bounds):
    """The error's lines, without folders."""
    with pytest.raises(AssertionError) as caught:
        tn.assert_budget(f, args, **bounds)
    assert type(caught.value) is tn.BudgetError and isinstance(caught.value, tn.TenferroError)
    return re.sub(r"(?<=at )/\S*/", "", str(caught.value)).splitlines()


def line_of_caller():
    return broken(scores, (X, M), kernels=0)[0]


def test_within_its_budget():
    bounds = {"kernels": 4, "compiles": 1, "peak_bytes": 1600, "seams": 2, "transfers": 0}
    jitted = tn.jit(scores)
    assert jitted.lower(X, M).memory().peak.bytes == 1600
    tn.assert_budget(jitted, (X, M), **bounds)
    tn.assert_budget(jitted, [X], {"m": M}, **bounds)
    for name, bound in bounds.items():
        tn.assert_budget(scores, (X, M), **{name: bound})
        tn.assert_budget(jitted, (X, M), **{name: bound + 1})
        if bound:
            assert broken(jitted, (X, M), **{name: bound - 1})[1].startswith(f"  {name}: {bound} found; at most ")


def test_the_error_names_the_line_of_the_caller():
    caller = broken.__code__.co_firstlineno + 3
    assert line_of_caller() == f"assert_budget: scores is over its budget (at test_budget.py:{caller})"


def test_every_kernel_and_seam_is_named_with_its_line():
    lines = broken(scores, (X, M), kernels=1, seams=0)
    here = "test_budget.py"
    assert lines[1] == "  kernels: 4 found; at most 1 is allowed"
    assert lines[2:6] == [
        f"    r0 (at {here}:{FIRST + 1}, {FIRST + 2})",
        f"    r1 (at {here}:{FIRST + 3})",
        f"    r2 (at {here}:{FIRST + 3})",
        f"    matmul (at {here}:{FIRST + 3})",
    ]
    assert lines[6:] == [
        "  seams: 2 found; at most 0 are allowed",
        f"    cumsum (at {here}:{FIRST + 2}): no kernel for cumsum",
        f"    sort (at {here}:{FIRST + 3}): no kernel for sort",
    ]


def test_the_peak_is_told_by_its_buffers():
    lines = broken(lambda x: np.cumsum(np.sort(x)[::-1] * 2), (X,), peak_bytes=1599)
    assert lines[1] == "  peak_bytes: 1600 found; at most 1599 are allowed"
    assert lines[2] == "    16*x.shape[0], in step 1 (region r0)"
    assert [line.partition(":")[0] for line in lines[3:]] == ["    s1", "    s3"]


def test_a_trace_too_many_is_told_by_its_reason():
    @tn.jit
    def mean(x):
        return x.sum() / len(x)

    mean(X)
    tn.assert_budget(mean, (X,), compiles=1)
    line = mean.__wrapped__.__code__.co_firstlineno + 2
    assert broken(mean, (X[:7],), compiles=1)[1:] == [
        "  compiles: 2 found; at most 1 is allowed",
        f"    trace 2: x.shape[0] == 100 holds no longer: x.shape[0] is 7 (at test_budget.py:{line})",
    ]
    assert mean.explain().traces[1].reason in str(broken(mean, (X,), compiles=1))
    tn.assert_budget(mean, (X,), compiles=2)
    assert "trace 1: first call" in str(broken(lambda x: x + 1, (X,), compiles=0))


def test_transfers_between_engines():
    def there(x):
        with tn.on("cpu:1"):
            y = np.exp(x)
        return y + 1

    with several(2):
        jitted = tn.jit(there)
        tn.assert_budget(jitted, (X,), transfers=1, kernels=2, seams=0)
        line = there.__code__.co_firstlineno + 2  # which made what crosses
        assert broken(jitted, (X,), transfers=0)[1:] == [
            "  transfers: 1 found; at most 0 are allowed",
            f"    s1 cpu:1/host → cpu:0/host: 8*x.shape[0] bytes, read by add (at test_budget.py:{line})",
        ]
        tn.assert_budget(jitted, (X,), peak_bytes=2 * X.nbytes)
        told = broken(jitted, (X,), peak_bytes=10)[1:]
        assert told[0].startswith(f"  peak_bytes: {2 * X.nbytes} found; at most 10 are allowed")
        assert [line.split(":")[:2] for line in told[1:]] == [["    cpu", "0"], ["    cpu", "1"]]


class Model:
    def __init__(self):
        self.weights = np.ones(100)

    @tn.jit
    def jitted(self, x):
        return x * self.weights

    def plain(self, x):
        return np.sort(x * self.weights)


def test_methods():
    model = Model()
    tn.assert_budget(model.jitted, (X,), kernels=1, seams=0, peak_bytes=800)
    tn.assert_budget(Model.jitted, (model, X), kernels=1, seams=0)
    tn.assert_budget(model.plain, (X,), kernels=1, seams=1)
    assert "at most 0 are allowed" in broken(model.jitted, (X,), kernels=0)[1]


def test_what_was_lowered_is_taken_as_it_is():
    lowered = tn.jit(scores).lower(X, M)
    tn.assert_budget(lowered, kernels=4, seams=2, peak_bytes=1608, transfers=0)
    with pytest.raises(tn.BudgetError, match="kernels: 4 found"):
        tn.assert_budget(lowered, kernels=3)
    with pytest.raises(TypeError, match="compiles counts the traces of a function"):
        tn.assert_budget(lowered, compiles=1)
    with pytest.raises(TypeError, match="which has its own"):
        tn.assert_budget(lowered, (X, M), kernels=3)


def test_arguments_are_not_written_to():
    @tn.jit(donate_argnums=0)
    def halve(x):
        x /= 2
        return x

    mine = np.full(5, 8.0)
    tn.assert_budget(halve, (mine,), seams=0, compiles=1)
    assert mine.tolist() == [8.0] * 5


def test_what_is_over_by_many_is_cut_short():
    lines = broken(lambda x: [np.sort(x + k) for k in range(12)], (X,), seams=3)
    assert lines[1] == "  seams: 12 found; at most 3 are allowed"
    assert len(lines) == 2 + 8 + 1 and lines[-1] == "    and 4 more"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tn.assert_budget(scores, (X, M), **{"kernel": 1}), TypeError, "unexpected keyword argument 'kernel'"),
        (lambda: tn.assert_budget(scores, (X, M)), TypeError, "no bound is given; one of kernels, compiles, "),
        (lambda: tn.assert_budget(scores, (X, M), seams=True), TypeError, "seams is True; an int, or None, is needed"),
        (lambda: tn.assert_budget(scores, (X, M), seams=1.0), TypeError, "seams is 1.0; an int, or None, is needed"),
        (lambda: tn.assert_budget(scores, (X, M), seams=-1), ValueError, "seams is -1; at least 0 is needed"),
        (lambda: tn.assert_budget(scores, X, seams=1), TypeError, "args is of class ndarray; a tuple of arguments is"),
        (lambda: tn.assert_budget(3, (), seams=1), TypeError, "an object of class int; a function is needed"),
    ],
)
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call()


def test_bounds_may_be_numpy_integers():
    tn.assert_budget(scores, (X, M), seams=np.int64(2))


def test_what_has_no_bound_is_named() -> None:
    """Counts, and what a loop stacks for its derivative: told beside the peak, and over every budget."""
    counts = tn.jit(lambda i: np.bincount(i))
    memory = counts.lower(np.array([10**7])).memory()
    assert memory.unbounded[0].startswith("the results of bincount (at ")
    slope = tn.jit(tn.grad(lambda x: tn.lax.while_loop(lambda s: s.sum() < 100, lambda s: s * 2, x).sum()))
    lowered = slope.lower(np.ones(5))
    assert lowered.memory().unbounded[0].startswith("the results of while (at ")
    assert "known only when it has run" in str(lowered.memory())
    for f, x in ((counts, np.array([3])), (slope, np.ones(5))):
        with pytest.raises(tn.BudgetError, match="no bound found"):
            tn.assert_budget(f, (x,), peak_bytes=1 << 40)


def test_bodies_count_once_each():
    def f(x):
        return tn.lax.scan(lambda c, v: (np.cumsum(np.sort(c * v) + 1), None), x, x)[0]

    jitted = tn.jit(f)
    tn.assert_budget(jitted, (X,), kernels=2, seams=3)
    lines = broken(jitted, (X,), kernels=0, seams=1)
    assert lines[1] == "  kernels: 2 found; at most 0 are allowed" and lines[4].startswith("  seams: 3 found; ")
    assert [line.split()[0] for line in lines[5:]] == ["scan", "sort", "cumsum"]
    assert all("(at test_budget.py:" in line for line in lines[5:])


def test_nested_bodies_and_all_branches_count():
    def inner(c, v):
        return tn.lax.cond(c.sum() > 1, lambda: np.sort(c), lambda: np.cumsum(c)), None

    def f(x):
        return tn.lax.fori_loop(0, 3, lambda i, c: tn.lax.scan(inner, c, x)[0], x)

    lines = broken(f, (X,), seams=0)
    assert [line.split()[0] for line in lines[2:]] == ["scan", "scan", "cond", "cumsum", "sort"]


def test_a_loop_in_a_segment_counts_as_its_body():
    one = broken(lambda x: tn.lax.scan(lambda c, v: (c * v + 1, None), x, x)[0] * 2, (X,), kernels=0, seams=0)
    two = broken(lambda x: tn.lax.scan(lambda c, v: (c * (c * v).sum(), None), x, x)[0] * 2, (X,), kernels=0)
    assert one[1].startswith("  kernels: 2 found") and len(one) == 4
    assert two[1].startswith("  kernels: ") and all("(at test_budget.py:" in line for line in two[2:])


BODIES = {
    "scan": lambda x: tn.lax.scan(lambda c, v: (np.cumsum(np.sort(c * v) + 1), None), x, x)[0],
    "while": lambda x: tn.lax.while_loop(lambda c: c.sum() < 1e4, lambda c: np.sort(c * 3), x),
}


@pytest.mark.parametrize("loop", BODIES)
def test_an_explanation_counts_the_kernels_of_bodies(loop):
    f = tn.jit(BODIES[loop], engine="cpu:0")
    f(X)
    assert f.cache_info().kernels == f.explain().traces[0].kernels == 2
    assert f.cache_info().kernel_bytes > 0
    assert len(re.findall("(?m)^; r", f.lower(X).as_text("llvm"))) == 2
