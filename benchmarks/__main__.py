"""The command line: which cases, peers and dtypes; a table on the screen, JSON and markdown where asked."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.case import ArrayCase, Case
    from benchmarks.measure import Result
    from benchmarks.peers.peer import Peer


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("--cases", default="", help="comma-separated; default: all but compile_9000")
    made.add_argument("--peers", default="", help="comma-separated, beside tenferro; default: every installed one")
    made.add_argument("--engine", default="cpu", choices=("cpu", "cuda"), help="cuda: arrays that stay on a GPU")
    made.add_argument("--dtype", default="float32,float64", help="float32,float64")
    made.add_argument("--size-scale", type=float, default=1.0, help="multiplies the number of elements")
    made.add_argument("--seconds", type=float, default=1.5, help="time for each case and peer, at least 5 rounds")
    made.add_argument("--rounds", type=int, default=0, help="of process cases; default: 3, or 9 of short ones")
    made.add_argument("--threads", type=int, default=0, help="default: the cores that this process may use")
    made.add_argument("--memory", action="store_true", help="peak resident memory above the inputs instead of time")
    made.add_argument("--json", type=Path, help="write the results here")
    made.add_argument("--markdown", type=Path, help="write docs/benchmarks.md's text here")
    made.add_argument("--from-json", type=Path, nargs="+", help="report these runs instead of measuring")
    made.add_argument("--list", action="store_true", help="name the cases and stop")
    return made


def limit_threads(threads: int) -> int:
    """Give every library the same cores. Called before any of them is imported: they read their settings once."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    count = min(threads or len(allowed), len(allowed))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, allowed[:count])
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR", "TENFERRO"):
        os.environ[f"{name}_NUM_THREADS"] = str(count)
    os.environ["NUMEXPR_MAX_THREADS"] = str(count)
    return count


def chosen_cases(text: str) -> list[Case]:
    from benchmarks.cases import CASES

    names = [n for n in text.split(",") if n] or [n for n in CASES if n != "compile_9000"]
    unknown = [n for n in names if n not in CASES]
    if unknown:
        raise SystemExit(f"benchmarks: no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    return [CASES[n] for n in names]


def chosen_peers(text: str, threads: int, engine: str) -> list[Peer]:
    from benchmarks.peers import load, peers_on

    known = peers_on(engine)
    names = list(dict.fromkeys(["tenferro", *(n for n in text.split(",") if n)])) if text else list(known)
    unknown = [n for n in names if n not in known]
    if unknown:
        raise SystemExit(f"benchmarks: no peer {', '.join(unknown)} on {engine}; there are {', '.join(known)}")
    found = []
    for name in names:
        try:
            found.append(load(name, threads, engine))
        except (ImportError, ValueError) as problem:  # not installed; no GPU
            if name == "tenferro":
                raise SystemExit(f"benchmarks: {problem}") from None
            print(f"{name} is left out: {problem}", file=sys.stderr)
    return found


def measure(args: argparse.Namespace, cases: Sequence[Case], peers: Sequence[Peer], threads: int) -> list[Result]:
    from benchmarks.case import ProcessCase
    from benchmarks.processes import run_memory_case, run_process_case

    names = [p.name for p in peers]
    results: list[Result] = []
    on_gpu = args.engine == "cuda"
    for case in cases if not on_gpu else [c for c in cases if not isinstance(c, ProcessCase)]:
        dtypes = args.dtype.split(",") if not isinstance(case, ProcessCase) or case.dtypes else [""]
        for dtype in dtypes:
            print(f"{case.name} {dtype} …", file=sys.stderr, flush=True)
            if isinstance(case, ProcessCase):
                wanted = [n for n in names if n == "tenferro" or n in (*case.against, *case.shown)]
                results += [] if args.memory else run_process_case(case, dtype, wanted, threads, args.rounds)
            elif args.memory:
                results += run_memory_case(case, dtype, names, threads, args.size_scale)
            else:
                results += run_array_case(args, case, dtype, peers, threads)
    return results


def run_array_case(
    args: argparse.Namespace, case: ArrayCase, dtype: str, peers: Sequence[Peer], threads: int
) -> list[Result]:
    import numpy as np

    from benchmarks.measure import floor_call, gpu_floor_call, run_case

    floor = gpu_floor_call if args.engine == "cuda" else partial(floor_call, threads=threads)
    return run_case(case, np.dtype(dtype), peers, args.size_scale, args.seconds, floor)


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    threads = limit_threads(args.threads)

    from benchmarks import report
    from benchmarks.cases import CASES
    from benchmarks.gates import gate_rows

    if args.list:
        print("\n".join(f"{c.name:14} {c.formula}" for c in CASES.values()))
        return
    if args.from_json:
        made = report.merge([report.from_json(p.read_text(encoding="utf-8")) for p in args.from_json])
    else:
        cases = chosen_cases(args.cases)
        peers = chosen_peers(args.peers, threads, args.engine)
        results = measure(args, cases, peers, threads)
        settings = {
            "command": " ".join(["python -m benchmarks", *(sys.argv[1:] if argv is None else argv)]),
            "threads": threads,
            "size_scale": args.size_scale,
        }
        machine = report.machine(threads) | (report.gpu() if args.engine == "cuda" else {})
        made = report.Report(machine, {p.name: p.version() for p in peers}, settings, results)
    print("\n".join(f"{k}: {v}" for k, v in made.machine.items()))
    print("versions: " + ", ".join(f"{k} {v}" for k, v in made.versions.items()) + "\n")
    print(report.text_table(report.rows(made, CASES)))
    gates = gate_rows(made, CASES) if args.engine == "cpu" else []
    if len(gates) > 1:
        print("\n" + report.text_table(gates))
    print("\n".join(["", *report.notes(made)]).rstrip())
    if args.json:
        args.json.write_text(report.to_json(made), encoding="utf-8")
    if args.markdown:
        _, title, memory = (args.markdown.read_text(encoding="utf-8") if args.markdown.exists() else "").partition(
            f"\n{report.MEMORY_TITLE}"
        )
        args.markdown.write_text(report.markdown(made, CASES, gates) + title + memory, encoding="utf-8")


if __name__ == "__main__":
    main()
