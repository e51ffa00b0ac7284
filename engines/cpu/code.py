"""The body of one LLVM function being written: names, blocks, loops, and byte-addressed memory.

Shared by the scalar and vector builders that write into the same function. Addresses are made with getelementptr on i8
only; integer arithmetic on pointers would cost alias information and, on some targets, provenance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Carried = Sequence[tuple[str, str]]  # (type, initial value) of what a loop carries round


class Code:
    """Lines of one function. ``block`` is the label of the block being written, which phis need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self.allocas: list[str] = []
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def new_label(self, hint: str = "b") -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def emit(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def alloca(self, size: int, align: int = 64) -> str:
        """Stack memory of the whole function (allocas in a loop would grow the stack at every turn)."""
        name = self.fresh()
        self.allocas.append(f"  {name} = alloca [{size} x i8], align {align}")
        return name

    def at(self, pointer: str, offset: str | int) -> str:
        """``pointer`` moved by a number of bytes."""
        if str(offset) == "0":
            return pointer
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def word(self, pointer: str, index: int) -> str:
        """The i64 at ``pointer[index]``."""
        return self.emit(f"load i64, ptr {self.at(pointer, 8 * index)}, align 8")

    def pointer(self, base: str, index: int) -> str:
        return self.emit(f"load ptr, ptr {self.at(base, 8 * index)}, align 8")

    def add(self, a: str | int, b: str | int) -> str:
        if str(a) == "0":
            return str(b)
        if str(b) == "0":
            return str(a)
        return self.emit(f"add i64 {a}, {b}")

    def sub(self, a: str | int, b: str | int) -> str:
        return str(a) if str(b) == "0" else self.emit(f"sub i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        if "0" in (str(a), str(b)):
            return "0"
        if str(a) == "1":
            return str(b)
        if str(b) == "1":
            return str(a)
        return self.emit(f"mul i64 {a}, {b}")

    def minimum(self, a: str | int, b: str | int) -> str:
        smaller = self.emit(f"icmp slt i64 {a}, {b}")
        return self.emit(f"select i1 {smaller}, i64 {a}, i64 {b}")

    def maximum(self, a: str | int, b: str | int) -> str:
        greater = self.emit(f"icmp sgt i64 {a}, {b}")
        return self.emit(f"select i1 {greater}, i64 {a}, i64 {b}")

    def compare(self, predicate: str, a: str | int, b: str | int) -> str:
        return self.emit(f"icmp {predicate} i64 {a}, {b}")

    def loop(
        self,
        start: str | int,
        stop: str | int,
        step: str | int,
        carried: Carried,
        body: Callable[[str, list[str]], Sequence[str]],
        going: Callable[[list[str]], str] | None = None,
    ) -> list[str]:
        """``for i in range(start, stop, step)``: ``body(i, values)`` returns the carried values of the next turn.
        The result is their values after the loop (the initial ones where it never ran). It ends early where
        ``going(values)`` is false."""
        head, inside, after = self.new_label("head"), self.new_label("body"), self.new_label("after")
        before = self.block
        self.jump(head)
        self.start(head)
        index = self.fresh()
        names = [self.fresh() for _ in carried]
        mark = len(self.lines)
        running = self.compare("slt", index, stop)
        if going is not None:
            running = self.emit(f"and i1 {running}, {going(names)}")
        self.branch(running, inside, after)
        self.start(inside)
        results = list(body(index, names))
        following = self.add(index, step)
        back = self.block
        self.jump(head)
        phis = [f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{back} ]"]
        phis += [
            f"  {n} = phi {t} [ {initial}, %{before} ], [ {r}, %{back} ]"
            for n, (t, initial), r in zip(names, carried, results, strict=True)
        ]
        self.lines[mark:mark] = phis
        self.start(after)
        return names

    def when(self, condition: str, body: Callable[[], None]) -> None:
        """Run ``body`` where the condition holds."""
        inside, after = self.new_label("then"), self.new_label("done")
        self.branch(condition, inside, after)
        self.start(inside)
        body()
        self.jump(after)
        self.start(after)

    def function(self, header: str) -> str:
        """The finished function; ``header`` is everything before the brace."""
        return "\n".join([header + " {", "entry:", *self.allocas, *self.lines, "}"]) + "\n"
