"""In: markdown files. Out: whether what their Python blocks print is what the ``text`` block below each says.

The blocks of a file run in order in one namespace; each is a source file of its own for line numbers, named after the
document. An exception or a warning prints as ``Class: text``. Of times, rates, shares and sizes of machine code only
the units are compared.
``python no-run`` marks a block that is not run. ``--write`` puts what was printed in place of the text blocks.

    python tools/run_docs.py README.md docs/*.md
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import linecache
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

# Pages count traces: what an earlier run of theirs has left on disk must not save them.
os.environ.setdefault("TENFERRO_CACHE_TRACES", "0")

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_VARYING = (
    (re.compile(r" *\b\d+(?:\.\d+)?(?:e[+-]?\d+)? (ns|µs|ms|s|GB/s|%)(?!\w)"), r" # \1"),
    (re.compile(r"\bkernel_bytes=\d+"), "kernel_bytes=#"),
)


@dataclass(frozen=True)
class Block:
    """A Python block, and where its text block stands or would stand."""

    code: str
    expected: str | None
    start: int  # the text block's span in the document; empty where there is none
    end: int


def blocks(text: str) -> Iterator[Block]:
    fences = list(_FENCE.finditer(text))
    for fence, following in zip_longest(fences, fences[1:]):
        if fence["info"].strip() != "python":
            continue
        if following is not None and following["info"] == "text" and not text[fence.end() : following.start()].strip():
            yield Block(fence["body"], following["body"], following.start(), following.end())
        else:
            yield Block(fence["body"], None, fence.end(), fence.end())


def run(code: str, name: str, namespace: dict[str, Any]) -> str:
    """What the block prints, its exception and warnings included."""
    out = io.StringIO()
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(code, name, "exec"), namespace)
        except Exception as problem:
            print(f"{type(problem).__name__}: {problem}")
        for warning in caught:
            print(f"{warning.category.__name__}: {warning.message}")
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def comparable(text: str) -> str:
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text


def check(path: Path, write: bool) -> list[str]:
    """The differences between the document and what its code prints; with ``write`` they are mended."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "example"}
    found: list[str] = []
    pieces: list[str] = []
    done = 0
    for block in blocks(text):
        printed = run(block.code, f"{path.stem.lower()}.py", namespace)
        pieces.append(text[done : block.start])
        done = block.end
        if comparable(printed) == comparable(block.expected or ""):
            pieces.append(text[block.start : block.end])
            continue
        gap = "" if block.expected is not None else "\n\n"
        pieces.append(f"{gap}```text\n{printed}```" if printed else "")
        written, now = (comparable(t).splitlines() for t in (block.expected or "", printed))
        found += difflib.unified_diff(written, now, f"{path}: written", f"{path}: printed", lineterm="")
    if write and found:
        path.write_text("".join([*pieces, text[done:]]), encoding="utf-8")
    return found


def main(arguments: Sequence[str]) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="+", type=Path, help="markdown files")
    parser.add_argument("--write", action="store_true", help="put what was printed in place of the text blocks")
    asked = parser.parse_args(arguments)
    for path in asked.documents:
        if not path.is_file():
            parser.error(f"{path}: no such file")
    found = [line for path in asked.documents for line in check(path, asked.write)]
    print("\n".join(found))
    return 1 if found and not asked.write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
