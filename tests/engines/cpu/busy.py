"""Native code that takes its time, for tests that interrupt it, fork in it, or wait for it."""

from __future__ import annotations


def busy(name: str, steps: int) -> str:
    """The text of a chunk function of this name that counts to ``steps`` in memory and does nothing else."""
    return f"""
define void @{name}(ptr %p, i64 %b, i64 %e) {{
entry:
  %s = alloca i64
  br label %l
l:
  %i = phi i64 [0, %entry], [%j, %l]
  store volatile i64 %i, ptr %s
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, {steps}
  br i1 %c, label %l, label %d
d:
  ret void
}}
"""
