// What the machine gives: fused multiply-adds and bytes read from memory, on as many threads as asked for.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#define SUMS 16
typedef float vec __attribute__((vector_size(4 * LANES)));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static long threads, steps = 2000000, floats = 64L << 20;
static float *memory;
static volatile float kept;

static void *arithmetic(void *thread) {
  vec s[SUMS], x = {0}, y = {0};
  x += 1.0000001f, y += 1e-9f;
#pragma GCC unroll 16
  for (int i = 0; i < SUMS; i++) s[i] = x * (float)i;
  for (long k = 0; k < steps; k++) {
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; i++) s[i] = s[i] * x + y;
    __asm__ volatile("" ::: "memory");
  }
#pragma GCC unroll 16
  for (int i = 1; i < SUMS; i++) s[0] += s[i];
  kept = s[0][0];
  return thread;
}

static void *reading(void *thread) {
  long lo = floats / threads * (long)thread, hi = lo + floats / threads;
  vec s[8] = {0};
  for (long i = lo; i + 8 * LANES <= hi; i += 8 * LANES)
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) s[j] += *(vec *)(memory + i + j * LANES);
#pragma GCC unroll 8
  for (int i = 1; i < 8; i++) s[0] += s[i];
  kept = s[0][0];
  return thread;
}

static double least(void *(*work)(void *)) {
  double best = 1e9;
  for (int round = 0; round < 10; round++) {
    pthread_t crew[64];
    double start = now();
    for (long t = 1; t < threads; t++) pthread_create(crew + t, 0, work, (void *)t);
    work(0);
    for (long t = 1; t < threads; t++) pthread_join(crew[t], 0);
    double taken = now() - start;
    if (taken < best) best = taken;
  }
  return best;
}

int main(int count, char **words) {
  threads = count > 1 ? atol(words[1]) : 1;
  memory = mmap(0, 4 * floats + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memory = (float *)(((size_t)memory + (2 << 20) - 1) / (2 << 20) * (2 << 20));
#ifdef MADV_HUGEPAGE
  madvise(memory, 4 * floats, MADV_HUGEPAGE);
#endif
  memset(memory, 0, 4 * floats);
  printf("{\"gflops\": %.2f, ", 2.0 * LANES * SUMS * steps * threads / least(arithmetic) / 1e9);
  printf("\"gbytes\": %.2f}\n", 4.0 * floats / least(reading) / 1e9);
}
