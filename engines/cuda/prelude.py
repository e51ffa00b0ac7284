"""What stands before the kernels of every module, and how a module is put together and compiled.

In: kernel texts. Out: one CUDA C text without includes, for NVRTC with ``OPTIONS`` and any compute capability from 7.5.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenferro.tracer.records import dataclass

OPTIONS = ("--std=c++17", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false")
"""Without these bits would differ: a contracted product and sum rounds once, and a flushed subnormal is zero."""

MAX_VALUE_WORDS = 500
"""Parameter words that a kernel takes by value: 4 kB is what every device takes, less a little."""


def takes_value(words: int) -> bool:
    """Whether a kernel takes this many parameter words by value."""
    return words <= MAX_VALUE_WORDS


PRELUDE = """\
#ifndef TN_SHIM
static __device__ char* tn_global(long long address) { return (char*)__cvta_global_to_generic(address); }
static __device__ float tn_from_half(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
static __device__ unsigned short tn_to_half(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
/* neg.f32 and abs.f32 leave open what becomes of a NaN's sign; the compiler makes them of other ways to write these. */
static __device__ float tn_neg(float x) {
  float y;
  asm("xor.b32 %0, %1, 0x80000000;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ double tn_neg(double x) {
  double y;
  asm("xor.b64 %0, %1, 0x8000000000000000;" : "=d"(y) : "d"(x));
  return y;
}
static __device__ float tn_abs(float x) {
  float y;
  asm("and.b32 %0, %1, 0x7fffffff;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ double tn_abs(double x) {
  double y;
  asm("and.b64 %0, %1, 0x7fffffffffffffff;" : "=d"(y) : "d"(x));
  return y;
}
#endif
template <int N> struct tn_bytes;
template <> struct tn_bytes<1> { typedef unsigned char type; };
template <> struct tn_bytes<2> { typedef unsigned short type; };
template <> struct tn_bytes<4> { typedef unsigned type; };
template <> struct tn_bytes<8> { typedef uint2 type; };
template <> struct tn_bytes<16> { typedef uint4 type; };
template <int N> struct tn_words { long long w[N]; };
/* n / d for n and d below 2**31: Granlund and Montgomery (1994), with the multiplier and shift of d. */
static __device__ unsigned tn_divide(unsigned n, unsigned multiplier, unsigned shift) {
  return (__umulhi(n, multiplier) + n) >> shift;
}
static __device__ void tn_record(long long latch, unsigned long long word) {
  atomicMin((unsigned long long*)latch, word);
}
"""


@dataclass(frozen=True, slots=True)
class KernelText:
    """``entries``: names of the ``__global__`` functions, by what they do; they are unique among all texts. Each takes
    one argument, the ``words`` parameter words: by value, or beyond ``MAX_VALUE_WORDS`` as a pointer to device memory.
    ``parts``: the tables and functions that the body needs, in order, by name."""

    entries: dict[str, str]
    words: int
    parts: dict[str, str]
    body: str

    @property
    def by_value(self) -> bool:
        return takes_value(self.words)

    @property
    def module(self) -> str:
        """A module of this kernel alone."""
        return module_text([self])


def module_text(kernels: Iterable[KernelText]) -> str:
    """One module of many kernels: compiling one takes about 50 ms, however little is in it."""
    parts: dict[str, str] = {}
    bodies: dict[str, None] = {}
    for kernel in kernels:
        parts.update(kernel.parts)
        bodies.setdefault(kernel.body)
    return "".join([PRELUDE, *parts.values(), *bodies])
