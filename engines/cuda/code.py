"""The body of one CUDA function being written: lines, nesting, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Code:
    """Lines of one function. Names are unique in it, so that a value may be used in every block inside its own."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._count = 0

    def fresh(self, hint: str = "v") -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def do(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    def let(self, kind: str, text: str, hint: str = "v") -> str:
        """A new constant of C type ``kind``; returns its name."""
        name = self.fresh(hint)
        self.do(f"const {kind} {name} = {text};")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """``head { … }``; an empty head opens a bare scope."""
        self.do(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.do("}")

    def captured(self, body: Callable[[], None]) -> list[str]:
        """The lines that ``body`` writes, one level deeper, taken out."""
        kept, self.lines = self.lines, []
        self._depth += 1
        body()
        self._depth -= 1
        kept, self.lines = self.lines, kept
        return kept

    def function(self, header: str) -> str:
        """The finished function; ``header`` is everything before the brace."""
        return "\n".join([header + " {", *self.lines, "}"]) + "\n"
