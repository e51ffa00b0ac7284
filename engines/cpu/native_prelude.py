"""What native functions are made of: memory, atomics, the floating-point control word, the clock, the futex.

Out: ``Foreign`` names for ``@native`` code and the LLVM text that defines them, per machine and system.
"""

from __future__ import annotations

import platform
import sys

from tenferro.engines.cpu.native_language import Foreign

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
HAS_FUTEX = sys.platform == "linux"


def _own(name: str, parameters: int, result: str = "i64") -> Foreign:
    return Foreign("p_" + name, result, ("i64",) * parameters, is_prelude=True)


load = _own("load", 1)
load32 = _own("load32", 1)
store = _own("store", 2, "void")
store32 = _own("store32", 2, "void")
atomic_load = _own("atomic_load", 1)
atomic_store = _own("atomic_store", 2, "void")
atomic_load32 = _own("atomic_load32", 1)
atomic_store32 = _own("atomic_store32", 2, "void")
# What was written before it is seen before it: enough to give up a lock, and no locked instruction.
release_store32 = _own("release_store32", 2, "void")
# Each returns the value before.
atomic_add = _own("atomic_add", 2)
atomic_add32 = _own("atomic_add32", 2)
atomic_or32 = _own("atomic_or32", 2)
atomic_and32 = _own("atomic_and32", 2)
# (address, expected, new) → 1 where the exchange took place.
exchange32 = _own("exchange32", 3)
multiply_overflows = _own("multiply_overflows", 2)
# Of signed words.
signed_multiply_overflows = _own("signed_multiply_overflows", 2)
add_overflows = _own("add_overflows", 2)
subtract_overflows = _own("subtract_overflows", 2)
signed_divide = _own("signed_divide", 2)
# Words that hold doubles.
float_add = _own("float_add", 2)
float_subtract = _own("float_subtract", 2)
float_multiply = _own("float_multiply", 2)
float_divide = _own("float_divide", 2)
float_less = _own("float_less", 2)
float_equal = _own("float_equal", 2)
as_float = _own("as_float", 1)
# To the nearest int, ties to the even one; what is too large becomes the largest.
rounded = _own("rounded", 1)
leading_zeros = _own("leading_zeros", 1)
pause = _own("pause", 0, "void")
# The control word, with the sticky exception flags where the machine keeps them in the same register.
read_float_control = _own("read_float_control", 0)
write_float_control = _own("write_float_control", 1, "void")
monotonic_ns = _own("monotonic_ns", 0)
# (address, value): sleep while the 32-bit word at the address has the value. (address, threads): wake so many sleepers.
futex_wait = _own("futex_wait", 2, "void")
futex_wake = _own("futex_wake", 2, "void")
current_core = _own("current_core", 0)
# (thread, bytes, address of the mask) → negative where it failed. Reading writes no more than the system's own mask.
get_affinity = _own("get_affinity", 3)
set_affinity = _own("set_affinity", 3)

# Round to nearest, every exception masked, subnormals kept: the state that a C program starts with.
FLOAT_CONTROL = 0 if IS_ARM else 0x1F80
# Added to it: subnormal results become zero, and subnormal operands are taken for it (on ARM one bit says both).
FLUSH = 1 << 24 if IS_ARM else 0x8040
# Without the flags of exceptions that have happened, which nobody here reads.
CONTROL_BITS = 0x7FFFFFFF if IS_ARM else 0xFFC0

_COMMON = """
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i32 @clock_gettime(i32, ptr)
define internal i64 @p_load(i64 %a) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %v = load i64, ptr %p
  ret i64 %v
}
define internal i64 @p_load32(i64 %a) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %v = load i32, ptr %p
  %w = zext i32 %v to i64
  ret i64 %w
}
define internal void @p_store(i64 %a, i64 %v) alwaysinline {
  %p = inttoptr i64 %a to ptr
  store i64 %v, ptr %p
  ret void
}
define internal void @p_store32(i64 %a, i64 %v) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %w = trunc i64 %v to i32
  store i32 %w, ptr %p
  ret void
}
define internal i64 @p_atomic_load(i64 %a) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %v = load atomic i64, ptr %p seq_cst, align 8
  ret i64 %v
}
define internal void @p_atomic_store(i64 %a, i64 %v) alwaysinline {
  %p = inttoptr i64 %a to ptr
  store atomic i64 %v, ptr %p seq_cst, align 8
  ret void
}
define internal i64 @p_atomic_load32(i64 %a) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %v = load atomic i32, ptr %p seq_cst, align 4
  %w = zext i32 %v to i64
  ret i64 %w
}
define internal void @p_atomic_store32(i64 %a, i64 %v) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %w = trunc i64 %v to i32
  store atomic i32 %w, ptr %p seq_cst, align 4
  ret void
}
define internal void @p_release_store32(i64 %a, i64 %v) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %w = trunc i64 %v to i32
  store atomic i32 %w, ptr %p release, align 4
  ret void
}
define internal i64 @p_atomic_add(i64 %a, i64 %v) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %o = atomicrmw add ptr %p, i64 %v seq_cst
  ret i64 %o
}
define internal i64 @p_exchange32(i64 %a, i64 %e, i64 %n) alwaysinline {
  %p = inttoptr i64 %a to ptr
  %e32 = trunc i64 %e to i32
  %n32 = trunc i64 %n to i32
  %r = cmpxchg ptr %p, i32 %e32, i32 %n32 seq_cst seq_cst
  %ok = extractvalue {i32, i1} %r, 1
  %w = zext i1 %ok to i64
  ret i64 %w
}
define internal i64 @p_multiply_overflows(i64 %a, i64 %b) alwaysinline {
  %r = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %a, i64 %b)
  %v = extractvalue {i64, i1} %r, 0
  %o = extractvalue {i64, i1} %r, 1
  %s = icmp slt i64 %v, 0
  %b1 = or i1 %o, %s
  %w = zext i1 %b1 to i64
  ret i64 %w
}
define internal i64 @p_leading_zeros(i64 %a) alwaysinline {
  %v = call i64 @llvm.ctlz.i64(i64 %a, i1 false)
  ret i64 %v
}
define internal i64 @p_monotonic_ns() {
  %t = alloca [2 x i64], align 16
  %r = call i32 @clock_gettime(i32 CLOCK, ptr %t)
  %s = load i64, ptr %t
  %p = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %p
  %m = mul i64 %s, 1000000000
  %v = add i64 %m, %n
  ret i64 %v
}
""" + "".join(
    f"""
define internal i64 @p_atomic_{name}32(i64 %a, i64 %v) alwaysinline {{
  %p = inttoptr i64 %a to ptr
  %w = trunc i64 %v to i32
  %o = atomicrmw {name} ptr %p, i32 %w seq_cst
  %x = zext i32 %o to i64
  ret i64 %x
}}"""
    for name in ("add", "or", "and")
)

_NUMBERS_TEXT = (
    """
declare double @llvm.rint.f64(double)
declare i64 @llvm.fptosi.sat.i64.f64(double)
define internal i64 @p_signed_divide(i64 %a, i64 %b) alwaysinline {
  %v = sdiv i64 %a, %b
  ret i64 %v
}
define internal i64 @p_as_float(i64 %a) alwaysinline {
  %v = sitofp i64 %a to double
  %w = bitcast double %v to i64
  ret i64 %w
}
define internal i64 @p_rounded(i64 %a) alwaysinline {
  %x = bitcast i64 %a to double
  %r = call double @llvm.rint.f64(double %x)
  %v = call i64 @llvm.fptosi.sat.i64.f64(double %r)
  ret i64 %v
}
"""
    + "".join(
        f"""
declare {{i64, i1}} @llvm.{intrinsic}.with.overflow.i64(i64, i64)
define internal i64 @p_{name}_overflows(i64 %a, i64 %b) alwaysinline {{
  %r = call {{i64, i1}} @llvm.{intrinsic}.with.overflow.i64(i64 %a, i64 %b)
  %o = extractvalue {{i64, i1}} %r, 1
  %w = zext i1 %o to i64
  ret i64 %w
}}"""
        for name, intrinsic in (("signed_multiply", "smul"), ("add", "sadd"), ("subtract", "ssub"))
    )
    + "".join(
        f"""
define internal i64 @p_float_{name}(i64 %a, i64 %b) alwaysinline {{
  %x = bitcast i64 %a to double
  %y = bitcast i64 %b to double
  %r = {operation} double %x, %y
  %w = {convert} %r to i64
  ret i64 %w
}}"""
        for name, operation, convert in (
            ("add", "fadd", "bitcast double"),
            ("subtract", "fsub", "bitcast double"),
            ("multiply", "fmul", "bitcast double"),
            ("divide", "fdiv", "bitcast double"),
            ("less", "fcmp olt", "zext i1"),
            ("equal", "fcmp oeq", "zext i1"),
        )
    )
)

_X86 = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal void @p_pause() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}
define internal i64 @p_read_float_control() {
  %p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %v = load i32, ptr %p
  %w = zext i32 %v to i64
  ret i64 %w
}
define internal void @p_write_float_control(i64 %v) {
  %p = alloca i32
  %w = trunc i64 %v to i32
  store i32 %w, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}
"""

_ARM = """
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal void @p_pause() alwaysinline {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}
define internal i64 @p_read_float_control() {
  %v = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %v
}
define internal void @p_write_float_control(i64 %v) {
  call void @llvm.aarch64.set.fpcr(i64 %v)
  ret void
}
"""

# FUTEX_WAIT_PRIVATE is 128, FUTEX_WAKE_PRIVATE 129 (linux/futex.h).
_LINUX = """
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
define internal void @p_futex_wait(i64 %a, i64 %v) {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, i64 %a, i64 128, i64 %v, i64 0, i64 0, i64 0)
  ret void
}
define internal void @p_futex_wake(i64 %a, i64 %n) {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, i64 %a, i64 129, i64 %n, i64 0, i64 0, i64 0)
  ret void
}
define internal i64 @p_current_core() alwaysinline {
  %c = call i32 @sched_getcpu()
  %w = sext i32 %c to i64
  ret i64 %w
}
define internal i64 @p_get_affinity(i64 %t, i64 %n, i64 %a) {
  %r = call i64 (i64, ...) @syscall(i64 GETAFFINITY, i64 %t, i64 %n, i64 %a)
  ret i64 %r
}
define internal i64 @p_set_affinity(i64 %t, i64 %n, i64 %a) {
  %r = call i64 (i64, ...) @syscall(i64 SETAFFINITY, i64 %t, i64 %n, i64 %a)
  ret i64 %r
}
"""
# x86-64 (asm/unistd_64.h), arm64 (asm-generic/unistd.h).
_NUMBERS = {"FUTEX": (202, 98), "SETAFFINITY": (203, 122), "GETAFFINITY": (204, 123)}

# Without a futex no worker is ever started, so nobody sleeps, nobody is woken, and none is to be placed.
_NOT_LINUX = """
define internal void @p_futex_wait(i64 %a, i64 %v) {
  ret void
}
define internal void @p_futex_wake(i64 %a, i64 %n) {
  ret void
}
define internal i64 @p_current_core() {
  ret i64 -1
}
define internal i64 @p_get_affinity(i64 %t, i64 %n, i64 %a) {
  ret i64 -1
}
define internal i64 @p_set_affinity(i64 %t, i64 %n, i64 %a) {
  ret i64 -1
}
"""


def prelude() -> str:
    """The LLVM text of all of the above for this machine."""
    clock = "6" if sys.platform == "darwin" else "1"  # CLOCK_MONOTONIC
    system = _LINUX if HAS_FUTEX else _NOT_LINUX
    for name, numbers in _NUMBERS.items():
        system = system.replace(name, str(numbers[IS_ARM]))
    return _COMMON.replace("CLOCK", clock) + _NUMBERS_TEXT + (_ARM if IS_ARM else _X86) + system


PRELUDE_SYMBOLS = ("clock_gettime", "syscall", "sched_getcpu") if HAS_FUTEX else ("clock_gettime",)
