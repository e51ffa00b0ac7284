"""The LLVM text of a fused loop: ``void loop(ptr params, i64 begin, i64 end)`` over vectors of lanes.

In: a ``FusedLoop`` and the number of lanes of a vector. Out: a module's text, and where its words are. A vector of
lanes is loaded, taken through the turns from word FROM to word TO with the carry in registers, and stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.body import OPERATION_SHIFT, CodeBuilder
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.elements import Value as Element
from tenferro.engines.cpu.fused_loops import FusedLoop, Part, is_array
from tenferro.engines.cpu.vector_builder import ModuleText, Vec, apply
from tenferro.tracer import scalar
from tenferro.tracer.ops import layout
from tenferro.tracer.program import DimScalar, Literal, Operand, Operation, Value
from tenferro.tracer.scalar.builder import Complex

LATCH, COUNT, CONTROL, FROM, TO, VECTOR, FIXED = range(7)
"""Fixed words: the latch's relative offset, lanes in all, the address of the control words (of a ``while``), the first
turn and the one to end before, the number of the vector that the launch begins with."""
TURN, GOES_ON, CONTROL_WORDS = range(3)
"""Control words: the turn that was come to (of one of the vectors), whether some lane's condition still holds."""


class Words:
    """Names to places among the parameters."""

    def __init__(self, loop: FusedLoop) -> None:
        self._places: dict[tuple[str, int], int] = {}
        for k in range(loop.carry):
            self._add("in", k)
            self._add("out", k)
        for k in range(loop.walked):
            self._add("x", k)
            self._add("x step", k)
        for k in range(len(loop.body.outputs) - loop.carry):
            self._add("y", k)
            self._add("y step", k)
        for k in loop.rest:
            self._add("rest", k)
            if is_array(loop, k):
                self._add("rest stride", k)
                self._add("rest size", k)
        for k in range(len(loop.sizes)):
            self._add("size", k)

    def _add(self, name: str, k: int) -> None:
        self._places[name, k] = FIXED + len(self._places)

    def __getitem__(self, name: tuple[str, int]) -> int:
        return self._places[name]

    @property
    def count(self) -> int:
        """Words in all."""
        return FIXED + len(self._places)


class LoopText:
    """Writes the function."""

    def __init__(self, loop: FusedLoop, lanes: int, outline: bool, module: ModuleText) -> None:
        self._loop = loop
        self._lanes = lanes
        self._module = module
        self.words = Words(loop)
        self._code = Code()
        self._one = CodeBuilder(module, 1, outline, self._code)
        self._many = self._one if lanes == 1 else CodeBuilder(module, lanes, outline, self._code)
        self._lane = "0"
        self._turn = "0"
        self._sizes: dict[DimScalar, Vec] = {}

    def text(self) -> str:
        """The module."""
        code = self._code
        count = code.word("%P", COUNT)
        last, base = code.maximum(code.sub(count, self._lanes), 0), code.word("%P", VECTOR)

        def vector(index: str, _: list[str]) -> Sequence[str]:
            self._lane = code.minimum(code.mul(code.add(index, base), self._lanes), last)
            self._vector()
            return []

        code.loop("%begin", "%end", 1, [], vector)
        code.do("ret void")
        header = "define void @loop(ptr noalias %P, i64 %begin, i64 %end) nounwind"
        return self._module.text([code.function(header)])

    # -- one vector ----------------------------------------------------------------------------------------------

    def _vector(self) -> None:
        code, loop = self._code, self._loop
        start, stop = code.word("%P", FROM), code.word("%P", TO)
        self._sizes = {x: Vec(code.word("%P", self.words["size", k]), elements.INT64) for k, x in enumerate(loop.sizes)}
        fixed: dict[int, Element] = {}
        for k in loop.rest:
            if not is_array(loop, k):
                fixed[k] = self._load(code.pointer("%P", self.words["rest", k]), loop.body, k)
        begun = [self._load(code.pointer("%P", self.words["in", k]), loop.body, k) for k in range(loop.carry)]
        values = self._invariants(loop.body, fixed)
        asked = None if loop.condition is None else self._invariants(loop.condition, fixed)
        turn, carry, goes_on = self._turns(start, stop, begun, values, asked)
        for k, x in enumerate(carry):
            self._store(code.pointer("%P", self.words["out", k]), x, loop.body, loop.body.program.inputs[k].value)
        if goes_on:
            control = code.pointer("%P", CONTROL)
            code.do(f"store i64 {turn}, ptr {code.at(control, 8 * TURN)}, align 8")
            wide = code.emit(f"zext i1 {goes_on} to i64")
            code.do(f"atomicrmw or ptr {code.at(control, 8 * GOES_ON)}, i64 {wide} monotonic")

    def _turns(
        self, start: str, stop: str, begun: list[Element], values: dict[int, Element], asked: dict[int, Element] | None
    ) -> tuple[str, list[Element], str]:
        """The turn that was come to, the carry then, and whether the condition holds there ("" without one)."""
        code, loop = self._code, self._loop
        head, ask, inside, done = (code.new_label(n) for n in ("turn", "ask", "inside", "done"))
        before = code.block
        code.jump(head)
        code.start(head)
        mark = len(code.lines)
        turn = code.fresh()
        names = [self._named(x) for x in begun]
        self._turn = turn
        holds = ""
        if asked is not None and loop.condition is not None:
            condition = loop.condition
            found = self._run(condition, dict(enumerate(names)) | asked, varying=True)
            answer = self._value(condition, condition.outputs[0], found)
            holds = elements.any_lane(code, answer.text, self._lanes if loop.stops_lanes else 1)
        running = code.compare("slt", turn, stop)
        if holds:
            code.branch(holds, ask, done)
            code.start(ask)
        end = code.block
        code.branch(running, inside, done)
        code.start(inside)
        results = self._body(names, values)
        after = code.add(turn, 1)
        back = code.block
        code.jump(head)
        phis = [f"  {turn} = phi i64 [ {start}, %{before} ], [ {after}, %{back} ]"]
        for name, first, following in zip(names, begun, results, strict=True):
            for n, f, r in zip(_parts(name), _parts(first), _parts(following), strict=True):
                kind = elements.value_type(self._width(n, name), n.dtype)
                phis.append(f"  {n.text} = phi {kind} [ {f.text}, %{before} ], [ {r.text}, %{back} ]")
        code.lines[mark:mark] = phis
        code.start(done)
        del end
        return turn, names, holds

    def _body(self, carry: Sequence[Element], values: dict[int, Element]) -> list[Element]:
        """One turn: slices in, results out; what is stacked is stored."""
        code, loop = self._code, self._loop
        given = dict(enumerate(carry)) | values
        for k in range(loop.walked):
            place = code.at(
                code.pointer("%P", self.words["x", k]), code.mul(self._turn, code.word("%P", self.words["x step", k]))
            )
            given[loop.carry + k] = self._load(place, loop.body, loop.carry + k)
        found = self._run(loop.body, given, varying=True)
        outputs = loop.body.outputs
        for k, y in enumerate(outputs[loop.carry :]):
            place = code.at(
                code.pointer("%P", self.words["y", k]), code.mul(self._turn, code.word("%P", self.words["y step", k]))
            )
            self._store(place, self._value(loop.body, y, found), loop.body, y)
        results = []
        for k, y in enumerate(outputs[: loop.carry]):
            value = self._value(loop.body, y, found)
            wanted = loop.body.levels[loop.body.program.inputs[k].value.id]
            results.append(self._widened(value) if wanted == "lane" and self._level(loop.body, y) == "one" else value)
        return results

    # -- values --------------------------------------------------------------------------------------------------

    def _named(self, x: Element) -> Element:
        """Fresh names in the form of a value, for phis."""
        if isinstance(x, Complex):
            return Complex(self._named(x.re), self._named(x.im))
        self._widths[name := self._code.fresh()] = self._widths.get(x.text, 0)
        return Vec(name, x.dtype)

    @property
    def _widths(self) -> dict[str, int]:
        return self.__dict__.setdefault("_widths_of", {})  # type: ignore[no-any-return]

    def _width(self, part: Vec, whole: Element) -> int:
        return self._widths[part.text]

    def _level(self, part: Part, x: Operand) -> str:
        return part.levels[x.id] if isinstance(x, Value) else "one"

    def _lanes_at(self, level: str) -> int:
        return self._lanes if level == "lane" else 1

    def _load(self, pointer: str, part: Part, k: int) -> Element:
        """Input k of a body: this vector's lanes of it, or the one value."""
        value = part.program.inputs[k].value
        level, dtype = part.levels[value.id], value.type.dtype
        if level == "lane":
            pointer = self._code.at(pointer, self._code.mul(self._lane, dtype.itemsize))
        found = elements.load(self._code, pointer, self._lanes_at(level), dtype)
        for v in _parts(found):
            self._widths[v.text] = self._lanes_at(level)
        return found

    def _store(self, pointer: str, value: Element, part: Part, x: Operand) -> None:
        level, dtype = self._level(part, x), x.type.dtype
        if level == "lane":
            pointer = self._code.at(pointer, self._code.mul(self._lane, dtype.itemsize))
        elements.store(self._code, pointer, value, self._lanes_at(level), dtype)

    def _value(self, part: Part, x: Operand, values: dict[int, Element]) -> Element:
        match x:
            case Value(id=number):
                return values[number]
            case Literal(value=value, dtype=dtype):
                return scalar.constant(self._one, value, dtype)
            case DimScalar(dtype=dtype):
                size = self._sizes[x]
                return size if dtype == size.dtype else scalar.astype(self._one, size, dtype)

    def _widened(self, value: Element) -> Element:
        return elements.splat(self._code, value, self._lanes)

    def _invariants(self, part: Part, fixed: dict[int, Element]) -> dict[int, Element]:
        """What no turn changes, computed once; ``fixed``: by input."""
        given = {part.program.inputs[k].value.id: x for k, x in fixed.items() if k < len(part.program.inputs)}
        return self._run(part, given, varying=False)

    def _run(self, part: Part, given: dict[int, Element], varying: bool) -> dict[int, Element]:
        """The operations of a turn, or those before all turns."""
        values = dict(given)
        for number, o in enumerate(part.program.operations):
            if (number in part.invariant) != varying:
                values[o.outputs[0].id] = self._operation(part, number, o, values)
        return values

    def _operation(self, part: Part, number: int, o: Operation, values: dict[int, Element]) -> Element:
        level = part.levels[o.outputs[0].id]
        if o.op is layout.iota:
            return self._iota()
        if o.op is layout.take:
            return self._pick(part, number, o, values)
        operands = [self._operand(part, x, values, level) for x in o.inputs]
        if o.op is layout.broadcast_to:
            return operands[0]
        return apply(self._many if level == "lane" else self._one, o.op, o.params, operands)

    def _operand(self, part: Part, x: Operand, values: dict[int, Element], level: str) -> Element:
        """An operand at the level of the operation."""
        if isinstance(x, Literal):
            return scalar.constant(self._many if level == "lane" else self._one, x.value, x.dtype)
        found = self._value(part, x, values)
        is_one = self._level(part, x) == "one"
        return self._widened(found) if level == "lane" and is_one and self._lanes > 1 else found

    def _iota(self) -> Element:
        code, lanes = self._code, self._lanes
        first = elements.splat_text(code, self._lane, lanes, "i64")
        if lanes == 1:
            return Vec(first, elements.INT64)
        return Vec(code.emit(f"add <{lanes} x i64> {first}, {elements.lane_numbers(lanes)}"), elements.INT64)

    def _pick(self, part: Part, number: int, o: Operation, values: dict[int, Element]) -> Element:
        """An element of an array; a place out of range is recorded, and element 0 read (of a zero where there is
        none)."""
        code, (x, place) = self._code, o.inputs
        assert isinstance(x, Value)
        k = next(k for k, i in enumerate(part.program.inputs) if i.value.id == x.id)
        one = self._value(part, place, values).text
        size = code.word("%P", self.words["rest size", k])
        wrapped = code.emit(f"select i1 {code.compare('slt', one, 0)}, i64 {code.add(one, size)}, i64 {one}")
        inside = code.compare("ult", wrapped, size)

        def record() -> None:
            word = max(number, 0) << OPERATION_SHIFT
            latch = code.at("%P", code.mul(code.word("%P", LATCH), 8))
            code.emit(f"atomicrmw umin ptr {latch}, i64 {word} monotonic")

        code.when(code.emit(f"xor i1 {inside}, true"), record)
        safe = code.alloca(16)
        code.do(f"store i128 0, ptr {safe}, align 16")
        base = code.pointer("%P", self.words["rest", k])
        address = code.at(base, code.mul(wrapped, code.word("%P", self.words["rest stride", k])))
        chosen = code.emit(f"select i1 {inside}, ptr {address}, ptr {safe}")
        return elements.load(code, chosen, 1, x.type.dtype)


def _parts(x: Element) -> list[Any]:
    return [x.re, x.im] if isinstance(x, Complex) else [x]
