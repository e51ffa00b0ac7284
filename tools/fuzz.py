"""Random programs until the time is up: minutes and a seed in, each failure out, shrunk, as code that runs.

    python tools/fuzz.py --minutes 10 --seed 1
    python tools/fuzz.py --sizes        # 1,000 random sizes against a program of each size's own, for every op

A failure prints its seed, the program as runnable Python, and its record for ``tests/random_programs/kept.py``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fuzz(minutes: float, seed: int, most: int) -> int:
    """Programs from ``seed`` on; the number that failed. Stops at ``most`` failures."""
    from tests.random_programs.compare import disagreements, shrink
    from tests.random_programs.generator import generate
    from tests.random_programs.statements import propose

    end, first, failures = time.monotonic() + 60 * minutes, seed, 0
    while time.monotonic() < end and failures < most:
        program = generate(random.Random(seed).randrange, propose)
        if disagreements(program):
            failures += 1
            small = shrink(program)
            print(f"# seed {seed}", *(f"#   {line}" for line in disagreements(small)), sep="\n")
            print(small.runnable(), repr(small), "\n", sep="\n", flush=True)
        seed += 1
    print(f"{seed - first} programs, {failures} failures")
    return failures


def sizes(count: int, seed: int) -> int:
    """Every op at ``count`` sizes; the number of ops that differ."""
    from tenferro.tracer.ops import OPS
    from tests.samples import SAMPLES
    from tests.table.sizes import check_sizes, size_pairs

    failures = 0
    for name in OPS:
        start = time.monotonic()
        wrong = check_sizes(name, size_pairs(SAMPLES[name].sized.minimum, count, seed))
        failures += bool(wrong)
        print(f"{name}: {count} sizes, {len(wrong)} differ, {time.monotonic() - start:.1f} s", *wrong[:3], sep="\n  ")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=20, help="stop at this many failures")
    parser.add_argument("--sizes", action="store_true", help="1,000 sizes for every op instead of random programs")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # the generator lives among the tests, which are not installed
    if arguments.sizes:
        return min(1, sizes(1000, arguments.seed))
    return min(1, fuzz(arguments.minutes, arguments.seed, arguments.most))


if __name__ == "__main__":
    sys.exit(main())
