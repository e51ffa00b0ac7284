"""What calls hold: ``python -m benchmarks.memory`` prints the peak memory of each case, beside what was planned.

Each case, dtype and library is measured in a process of its own: the peak of resident memory in one call, above what
was resident before it. Libraries, inputs and compiled code are resident then, and what allocators keep for later calls
has been given back. A library's forms are all measured and the one that takes least counts. *plan* is what
``f.lower(*args).memory()`` says; *kept*: what tenferro's pool holds when the result is dead, for the next call.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.__main__ import limit_threads
from benchmarks.case import ArrayCase
from benchmarks.cases import CASES
from benchmarks.measure import peak_rss, status_bytes
from benchmarks.memory_cases import MEMORY_CASES, MemoryCase
from benchmarks.report import MEMORY_TITLE, markdown_table, text_table

LIBRARIES = ("tenferro", "jax", "torch", "numpy")
AGAINST = ("jax", "torch")
WARM_CALLS, CALLS = 3, 5
SLACK_BYTES = 1 << 20
"""What a call may take beside its arrays before a gate is missed: the kernel counts pages of stacks and tables in
steps, and allocators map whole pages."""
TIMEOUT_SECONDS = 300
DATA_SIZED = {"mask_sum"}
"""Cases whose sizes depend on values: the plan states an upper bound."""
EXPLANATION = (
    "Made by `python -m benchmarks.memory`: MiB that one call adds to the process's resident memory at its peak, after "
    "calls that have compiled, each case and library in a process of its own. Results are counted; arguments are not. "
    "A library's forms are all measured and the one that takes least is shown. *plan*: what "
    "`f.lower(*args).memory().peak` says. *kept*: what the pool holds for the next call when the result is dead; "
    "at most `TENFERRO_POOL_BYTES`. The gate is to take at most what JAX and torch take (*least*) and what the "
    "plan says (*plan*; at most that where sizes depend on values), within 1 MiB. Of `mask_sum`, `x[x > 0].sum()`, the "
    "peers' forms sum with where and hold nothing; here the selected elements are held, since the order of a sum "
    "follows their places."
)
Call = Callable[[], Any]
Case = ArrayCase | MemoryCase


@dataclass(frozen=True)
class Held:
    """Bytes. ``peak``: the least of a library's forms, which is ``form``; ``kept`` when the result is dead; ``plan``
    where the library states one. ``status``: ``ok``, or why there is nothing."""

    library: str
    status: str
    form: str = ""
    peak: int = 0
    kept: int = 0
    plan: int | None = None


# In the child.


def give_back() -> None:
    """Return to the system what the process's allocators keep for later."""
    gc.collect()
    if "tenferro.engines.cpu.memory" in sys.modules:
        sys.modules["tenferro.engines.cpu.memory"].trim()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def held_by(call: Call, renew: Callable[[], None]) -> tuple[int, int]:
    """The peak of a call above the level before it, and what stays when the result is dead: medians over some calls.
    ``renew`` makes again what a call uses up."""
    for _ in range(WARM_CALLS):
        renew()
        call()
    found = []
    for _ in range(CALLS):
        renew()
        give_back()
        before = status_bytes("VmRSS")
        peak = peak_rss()
        result = call()
        most = peak() - before
        del result
        found.append((max(0, most), max(0, status_bytes("VmRSS") - before)))
    return int(median(p for p, _ in found)), int(median(k for _, k in found))


def measure(library: str, case: Case, dtype: np.dtype[Any], threads: int, scale: float) -> Held:
    """One library's figures for one case, in this process."""
    inputs = case.inputs(dtype, scale)
    if isinstance(case, MemoryCase):
        forms, renew = several_arrays(library, case, inputs, threads)
    else:
        from benchmarks.peers import load

        forms, renew = load(library, threads).forms(case, inputs), _nothing
    if not forms:
        return Held(library, "cannot express it")
    measured = {form: held_by(call, renew) for form, call in forms.items()}
    form, (peak, kept) = min(measured.items(), key=lambda item: item[1])
    return Held(library, "ok", form, peak, kept, planned(case, inputs) if library == "tenferro" else None)


def _nothing() -> None:
    pass


def several_arrays(
    library: str, case: MemoryCase, inputs: Sequence[Any], threads: int
) -> tuple[Mapping[str, Call], Callable[[], None]]:
    """A case's form in a library, and what puts fresh arrays in the place of donated ones."""
    convert: Callable[[Any], Any] = np.array
    run: Callable[..., Any]
    match library:
        case "tenferro":
            import tenferro as tn

            tn.threads(threads).__enter__()
            run = tn.jit(case.function, donate_argnums=case.donated)
        case "jax":
            import jax

            jax.config.update("jax_enable_x64", True)
            jax.config.update("jax_platforms", "cpu")
            jitted = jax.jit(case.jax(jax.numpy), donate_argnums=case.donated)
            convert, run = jax.device_put, lambda *a: jax.block_until_ready(jitted(*a))
        case "torch":
            import torch

            torch.set_num_threads(threads)
            convert, run = lambda x: torch.from_numpy(x.copy()), case.torch(torch)
        case _:
            run = case.function
    arguments = [convert(x) for x in inputs]

    def renew() -> None:
        for k in case.donated:
            arguments[k] = convert(inputs[k])

    return {"": lambda: run(*arguments)}, renew


def planned(case: Case, inputs: Sequence[Any]) -> int:
    """What the plan says."""
    import tenferro as tn
    from benchmarks.peers.tenferro_peer import form_of

    if isinstance(case, MemoryCase):
        return tn.jit(case.function, donate_argnums=case.donated).lower(*inputs).memory().peak.bytes
    return tn.jit(form_of(case)).lower(*inputs).memory().peak.bytes


# In the parent.


def in_child(library: str, case: Case, dtype: str, threads: int, scale: float) -> Held:
    """The same in a process of its own."""
    arguments = ["--child", library, "--cases", case.name, "--dtype", dtype, "--threads", str(threads)]
    # glibc raises its threshold for mapped memory as it goes, and then keeps what is freed below it.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "JAX_COMPILATION_CACHE_DIR": ""}
    command = [sys.executable, "-m", "benchmarks.memory", *arguments, "--size-scale", str(scale)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return Held(library, f"more than {TIMEOUT_SECONDS} s")
    if done.returncode != 0:
        return Held(library, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200])
    try:
        return Held(**json.loads(done.stdout.strip().splitlines()[-1]))
    except (IndexError, ValueError):
        return Held(library, f"wrote {done.stdout[-200:]!r}")


def size(held: Held | None) -> str:
    if held is None or held.status != "ok":
        return "—"
    return mebibytes(held.peak)


def mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f}"


def row(case: Case, dtype: str, found: Mapping[str, Held]) -> list[str]:
    """A line of the table. The gate: at most what each rival takes, and what the plan says."""
    mine = found["tenferro"]
    plan = mine.plan or 0
    rivals = [found[n] for n in AGAINST if n in found and found[n].status == "ok"]
    is_least = all(mine.peak <= r.peak + SLACK_BYTES for r in rivals)
    is_planned = mine.peak <= plan + SLACK_BYTES and (case.name in DATA_SIZED or plan <= mine.peak + SLACK_BYTES)
    gates = [("least", is_least), ("plan", is_planned)]
    missed = [name for name, holds in gates if not holds] if mine.status == "ok" else [mine.status]
    sizes = [size(found.get(name)) for name in LIBRARIES if name in found]
    return [case.name, dtype, *sizes, mebibytes(plan), mebibytes(mine.kept), ", ".join(missed) or "yes"]


def write_part(path: Path, table: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    """Put the table at the end of ``path``, in the place of an earlier one."""
    before = path.read_text(encoding="utf-8").split(MEMORY_TITLE)[0].rstrip() if path.exists() else ""
    cases = [f"- `{case.name}`: {case.formula}" for case in MEMORY_CASES.values()]
    parts = [before, MEMORY_TITLE, EXPLANATION, markdown_table(table), "\n".join(cases)]
    parts += ["\n".join(f"- {note}" for note in notes)]
    path.write_text("\n\n".join(p for p in parts if p) + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    made.add_argument("--cases", default="", help="comma-separated; default: all")
    made.add_argument("--libraries", default=",".join(LIBRARIES), help="comma-separated, tenferro first")
    made.add_argument("--dtype", default="float32", help="float32,float64")
    made.add_argument("--size-scale", type=float, default=1.0, help="multiplies the number of elements")
    made.add_argument("--threads", type=int, default=0, help="default: the cores that this process may use")
    made.add_argument("--markdown", type=Path, help="put the table at the end of this file")
    made.add_argument("--child", default="", help=argparse.SUPPRESS)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    threads = limit_threads(args.threads)
    every: dict[str, Case] = {n: c for n, c in CASES.items() if isinstance(c, ArrayCase)} | MEMORY_CASES
    names = [n for n in args.cases.split(",") if n] or list(every)
    if args.child:
        held = measure(args.child, every[names[0]], np.dtype(args.dtype), threads, args.size_scale)
        print(json.dumps(asdict(held)))
        return
    libraries = args.libraries.split(",")
    table = [["case", "dtype", *libraries, "plan", "kept", "gate met"]]
    notes = []
    for name in names:
        for dtype in args.dtype.split(","):
            print(f"{name} {dtype} …", file=sys.stderr, flush=True)
            found = {x: in_child(x, every[name], dtype, threads, args.size_scale) for x in libraries}
            table.append(row(every[name], dtype, found))
            notes += [f"{name} {dtype}: {h.library}: {h.status}" for h in found.values() if h.status != "ok"]
    print(text_table(table))
    print(*notes, sep="\n")
    if args.markdown:
        write_part(args.markdown, table, notes)


if __name__ == "__main__":
    main()
