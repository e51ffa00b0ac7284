"""The body of one LLVM function being written: names, blocks, loops, and byte-addressed memory.

Shared by the scalar and vector builders that write into the same function. Addresses are made with getelementptr on i8
only; integer arithmetic on pointers would cost alias information and, on some targets, provenance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Carried = Sequence[tuple[str, str]]  # (type, initial value) of what a loop carries round

_PURE = frozenset(
    "add sub mul udiv sdiv urem srem and or xor shl lshr ashr icmp fcmp select getelementptr trunc zext sext sitofp "
    "fptosi bitcast insertelement extractelement shufflevector".split()
)
_PARAMETERS = "%P"


def _is_number(x: str | int) -> bool:
    return isinstance(x, int) or x.isdigit()


class Code:
    """Lines of one function. ``block`` is the label of the block being written, which phis need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self.allocas: list[str] = []
        self._count = 0
        self._known: dict[str, str] = {}  # what the block has computed, by its text
        self._known_in = ""

    def fresh(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def new_label(self, hint: str = "b") -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def emit(self, text: str) -> str:
        """The value of an instruction: the one that the block has, where this changes and reads nothing."""
        if text[: text.index(" ")] in _PURE:
            return self._once(text)
        self._count += 1
        name = f"%t{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def _once(self, text: str) -> str:
        if self._known_in != self.block:
            self._known_in, self._known = self.block, {}
        found = self._known.get(text)
        if found is None:
            self._count += 1
            found = self._known[text] = f"%t{self._count}"
            self.lines.append(f"  {found} = {text}")
        return found

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
        return self._read(pointer, f"load i64, ptr {self.at(pointer, 8 * index)}, align 8")

    def pointer(self, base: str, index: int) -> str:
        return self._read(base, f"load ptr, ptr {self.at(base, 8 * index)}, align 8")

    def _read(self, base: str, text: str) -> str:
        return self._once(text) if base == _PARAMETERS else self.emit(text)  # nothing writes to parameters

    def add(self, a: str | int, b: str | int) -> str:
        if str(a) == "0":
            return str(b)
        if str(b) == "0":
            return str(a)
        if _is_number(a) and _is_number(b):
            return str(int(a) + int(b))
        return self.emit(f"add i64 {a}, {b}")

    def sub(self, a: str | int, b: str | int) -> str:
        return str(a) if str(b) == "0" else self.emit(f"sub i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        if _is_number(a) and _is_number(b):
            return str(int(a) * int(b))
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

    def halving(self, count: int, fold: Callable[[str, str], None]) -> None:
        """``fold(k, half)`` for each k below half of ``count``, then below half of that, until it was 0 alone.
        ``count``: a power of two."""

        def level(_: str, values: list[str]) -> Sequence[str]:
            (half,) = values

            def one(k: str, _: list[str]) -> Sequence[str]:
                fold(k, half)
                return []

            self.loop(0, half, 1, [], one)
            return [self.emit(f"lshr i64 {half}, 1")]

        self.loop(0, count.bit_length() - 1, 1, [("i64", str(count // 2))], level)

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
