// What the parts of a network work with while they run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "qna/engine/arena.h"
#include "qna/engine/context.h"

namespace qna::engine {

// Threads that compute together, and the memory of their maps.
struct Worker {
  Runtime& runtime;
  Arena& arena;
};

// A map [batch, height, width, features], channels last.
struct Map {
  int64_t batch = 0, height = 0, width = 0, features = 0;
  float* data = nullptr;

  int64_t positions() const { return height * width; }
  int64_t rows() const { return batch * height * width; }
  int64_t size() const { return rows() * features; }
};

// Where a map counts: [batch, height, width], 0 does not; or null, everywhere.
using Mask = const uint8_t*;

// The threads of a context: all together, or each with memory of its own.
struct Context::State {
  explicit State(int threads);

  struct Own {
    ThreadRuntime runtime{1};
    Arena arena;
  };
  ThreadRuntime runtime;
  Arena arena;
  std::vector<std::unique_ptr<Own>> own;  // of as many parts of a batch as there are threads
};

// Every n-th row and column of a mask, which may be null; n = 1: the mask itself.
Mask every_nth(Mask mask, int64_t batch, int64_t height, int64_t width, int64_t n, Scope& scope);

// x with zeros where the mask is 0; in place.
void zero_masked(const Map& x, Mask mask);

// y += x, numbers of both; x may repeat every `period` numbers.
void add(float* y, const float* x, int64_t count, int64_t period, Runtime& runtime);

}  // namespace qna::engine
