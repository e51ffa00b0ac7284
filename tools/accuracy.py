"""Measures the elementary functions against mpmath; out comes the table of docs/accuracy.md.

    python tools/accuracy.py [--count 4000] [--seed 0]

``count`` arguments for each function, dtype and class of arguments. Real functions: the largest error in units in the
last place of the true value, those of two operands over all classes. Complex functions: complex64 by part, complex128
by the size of the result.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def real_table(count: int, seed: int) -> list[str]:
    from tests.tracer.scalar.inputs import ALL_NAMES, exact, function, input_classes, ulps
    from tests.tracer.scalar.kernels import compiled

    rows = []
    for dtype in (np.dtype(d) for d in ("float16", "float32", "float64")):
        for name in ALL_NAMES:
            kernel = compiled(function(name), [dtype])
            worst = [
                float(ulps(kernel(x), *exact(name, x)).max()) for x in input_classes(name, dtype, count, seed).values()
            ]
            rows.append(f"| {name} | {dtype} | {' | '.join(f'{w:.3f}' for w in worst)} |")
    head = list(input_classes("exp", np.dtype(np.float32), 4))
    return [f"| function | dtype | {' | '.join(head)} |", f"| {' | '.join('---' for _ in (1, 2, *head))} |", *rows]


def pair_table(count: int, seed: int) -> list[str]:
    from tests.tracer.scalar.inputs import function
    from tests.tracer.scalar.kernels import compiled
    from tests.tracer.scalar.test_accuracy_of_pairs import NAMES, classes, errors_of

    rows = ["| function | dtype | largest error |", "| --- | --- | --- |"]
    for dtype in (np.dtype(d) for d in ("float16", "float32", "float64")):
        for name in NAMES:
            kernel = compiled(function(name), [dtype, dtype])
            worst = max(float(errors_of(name, kernel(*p), p).max()) for p in classes(name, dtype, count, seed).values())
            rows.append(f"| {name} | {dtype} | {worst:.3f} |")
    return rows


def complex_table(count: int, seed: int) -> list[str]:
    from tests.tracer.scalar.inputs import COMPLEX_NAMES, complex_classes, complex_errors, exact_complex, function
    from tests.tracer.scalar.kernels import compiled

    rows = []
    for dtype in (np.dtype(d) for d in ("complex64", "complex128")):
        for name in COMPLEX_NAMES:
            kernel, worst = compiled(function(name), [dtype]), []
            for z in complex_classes(name, dtype, count, seed).values():
                by_size, by_part = complex_errors(kernel(z), exact_complex(name, z))
                worst.append(float((by_part if dtype == np.complex64 else by_size).max()))
            rows.append(f"| {name} | {dtype} | {' | '.join(f'{w:.3f}' for w in worst)} |")
    head = list(complex_classes("exp", np.dtype(np.complex64), 4))
    return [f"| function | dtype | {' | '.join(head)} |", f"| {' | '.join('---' for _ in (1, 2, *head))} |", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("\n".join(real_table(options.count, options.seed)), end="\n\n")
    print("\n".join(pair_table(options.count, options.seed)), end="\n\n")
    print("\n".join(complex_table(options.count // 10, options.seed)))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
