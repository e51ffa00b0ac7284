// The threads of a block as fibers on one thread of the CPU.
//
// A barrier (of the block or of a warp) gives the CPU to the next fiber; blocks run one after the other. Kernels without
// barriers run their threads as a plain loop.
#include "cuda_shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

tn_dim threadIdx, blockIdx, blockDim, gridDim;
__attribute__((aligned(64))) unsigned char tn_shared[48 << 10];

// Saves the registers that a call keeps and the stack pointer, and goes on where another fiber did so. swapcontext does
// the same with two system calls more, which is twenty times the time.
extern "C" void tn_switch(char** from, char* to);
asm(R"(
.pushsection .text
.globl tn_switch
tn_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.popsection
)");

struct tn_fiber {
  char* stack;
  tn_state state;
  unsigned long long box[2];
  unsigned turn;
};
static const size_t STACK = 64 << 10;
static const unsigned MOST = 1024;
static tn_fiber fibers[MOST];
static char* stacks;
static char* scheduler;
static unsigned current;
static tn_kernel running;
static const long long* running_words;

void tn_wait(tn_state state) {
  fibers[current].state = state;
  tn_switch(&fibers[current].stack, scheduler);
}

unsigned tn_lane() { return current & 31; }

// Two boxes in turn: nobody is two shuffles ahead of a thread of its warp.
unsigned long long tn_shuffle_bits(unsigned long long x, unsigned source) {
  tn_fiber& me = fibers[current];
  const unsigned turn = me.turn++ & 1, warp = current & ~31u;
  me.box[turn] = x;
  tn_wait(TN_WARP);
  return fibers[warp + source].box[turn];
}

static void fiber_main() {
  running(running_words);
  tn_wait(TN_DONE);
}

static void start(unsigned t) {
  tn_fiber& f = fibers[t];
  f.state = TN_READY;
  f.turn = 0;
  // As if it had been left in its first line: six registers, then where to go on; no one is returned to.
  char** top = (char**)(stacks + (t + 1) * STACK);
  top[-1] = 0;
  top[-2] = (char*)fiber_main;
  f.stack = (char*)(top - 8);
}

// Threads of [first, stop) that wait at `state` go on when every one does, or is done.
static bool release(unsigned first, unsigned stop, tn_state state) {
  bool any = false;
  for (unsigned t = first; t < stop; ++t) {
    if (fibers[t].state == TN_DONE) continue;
    if (fibers[t].state != state) return false;
    any = true;
  }
  for (unsigned t = first; any && t < stop; ++t)
    if (fibers[t].state == state) fibers[t].state = TN_READY;
  return any;
}

static void run_block(unsigned count) {
  for (unsigned t = 0; t < count; ++t) start(t);
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned t = 0; t < count; ++t) {
      if (fibers[t].state != TN_READY) continue;
      current = t;
      threadIdx = {t % blockDim.x, t / blockDim.x, 0};
      tn_switch(&scheduler, fibers[t].stack);
      moved = true;
    }
    for (unsigned w = 0; w < count; w += 32) moved |= release(w, w + 32 < count ? w + 32 : count, TN_WARP);
    moved |= release(0, count, TN_BLOCK);
  }
  for (unsigned t = 0; t < count; ++t)
    if (fibers[t].state != TN_DONE) {
      fprintf(stderr, "the threads of a block wait for one another at different barriers\n");
      abort();
    }
}

void tn_run(tn_kernel kernel, const long long* words, unsigned grid, unsigned x, unsigned y, bool barriers) {
  if (x * y > MOST) {
    fprintf(stderr, "a block of %u threads; no device takes more than %u\n", x * y, MOST);
    abort();
  }
  if (!stacks)
    stacks = (char*)mmap(0, MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  running = kernel;
  running_words = words;
  gridDim = {grid, 1, 1};
  blockDim = {x, y, 1};
  for (unsigned b = 0; b < grid; ++b) {
    blockIdx = {b, 0, 0};
    // Shared memory holds anything at the start of a block.
    memset(tn_shared, 0xa5, sizeof tn_shared);
    if (barriers) {
      run_block(x * y);
      continue;
    }
    for (unsigned t = 0; t < x * y; ++t) {
      threadIdx = {t % x, t / x, 0};
      kernel(words);
    }
  }
}
