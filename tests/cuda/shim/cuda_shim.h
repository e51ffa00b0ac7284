// Runs the texts of tenferro.engines.cuda on the CPU: what they use of CUDA, in C++17 for x86-64.
//
// Kernels include this; the fibers that their threads are live in cuda_shim.cpp, which is compiled once.
#pragma once
#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(n)
#define __align__(n) __attribute__((aligned(n)))
// Only used as "extern __shared__ … tn_shared[]": the array below is it.
#define __shared__

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct tn_dim { unsigned x, y, z; };
extern tn_dim threadIdx, blockIdx, blockDim, gridDim;
extern unsigned char tn_shared[];

static inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
template <class To, class From> static inline To tn_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits of one size");
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline int __float_as_int(float x) { return tn_bits<int>(x); }
static inline float __int_as_float(int x) { return tn_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return tn_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return tn_bits<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x * y) >> 32); }
static inline unsigned long long atomicMin(unsigned long long* place, unsigned long long word) {
  unsigned long long before = *place;
  if (word < before) *place = word;
  return before;
}

#define TN_SHIM
static inline float tn_neg(float x) { return -x; }
static inline double tn_neg(double x) { return -x; }
static inline float tn_abs(float x) { return fabsf(x); }
static inline double tn_abs(double x) { return fabs(x); }
static inline char* tn_global(long long address) { return (char*)address; }
static inline float tn_from_half(unsigned short x) { return (float)tn_bits<_Float16>(x); }
static inline unsigned short tn_to_half(float x) { return tn_bits<unsigned short>((_Float16)x); }

// Barriers and shuffles.

enum tn_state { TN_READY, TN_WARP, TN_BLOCK, TN_DONE };
void tn_wait(tn_state state);
unsigned long long tn_shuffle_bits(unsigned long long x, unsigned source);
unsigned tn_lane();
typedef void (*tn_kernel)(const long long*);
void tn_run(tn_kernel kernel, const long long* words, unsigned grid, unsigned x, unsigned y, bool barriers);

static inline void __syncthreads() { tn_wait(TN_BLOCK); }
static inline void __syncwarp() { tn_wait(TN_WARP); }
template <class T> static inline T tn_shuffle(T x, unsigned source) {
  unsigned long long bits = 0;
  memcpy(&bits, &x, sizeof x);
  bits = tn_shuffle_bits(bits, source);
  memcpy(&x, &bits, sizeof x);
  return x;
}
template <class T> static inline T __shfl_down_sync(unsigned, T x, unsigned delta, int width) {
  unsigned lane = tn_lane(), end = (lane & ~(width - 1)) + width;
  return tn_shuffle(x, lane + delta < end ? lane + delta : lane);
}
template <class T> static inline T __shfl_sync(unsigned, T x, int source, int width) {
  return tn_shuffle(x, (tn_lane() & ~(width - 1)) + source);
}
