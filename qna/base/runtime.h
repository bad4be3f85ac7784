// What a kernel may ask of its surroundings: workers and scratch memory. Kernels start no threads
// and take all memory that matters from here (the plain reference loops excepted), so the same
// kernel runs under LibTorch's pool and allocator, or alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "qna/base/function_ref.h"

namespace qna {

// (index, worker)
using Task = FunctionRef<void(int64_t, int)>;

class Runtime {
 public:
  virtual ~Runtime() = default;

  // How many workers for_each uses at most.
  virtual int workers() const = 0;

  // Memory for the duration of one kernel call, aligned to kScratchAlignment; asked for once.
  virtual void* scratch(size_t bytes) = 0;

  // Runs task(index, worker) for every index in [0, count), each exactly once, worker in
  // [0, workers()), and returns when all are done. No order is promised: tasks write to different
  // places, and reductions happen afterwards in a fixed order.
  virtual void for_each(int64_t count, Task task) = 0;
};

inline constexpr size_t kScratchAlignment = 64;

// Workers are threads that stay as long as the runtime, from the first for_each that needs them;
// one worker means the calling thread alone. Between calls they watch for a moment, then sleep.
// Scratch memory is kept and only grows. For one calling thread at a time.
class ThreadRuntime : public Runtime {
 public:
  explicit ThreadRuntime(int workers = 1);
  ~ThreadRuntime() override;
  int workers() const override { return workers_; }
  void* scratch(size_t bytes) override;
  void for_each(int64_t count, Task task) override;
  size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct Free {
    void operator()(void* pointer) const;
  };
  struct Crew;
  int workers_;
  std::unique_ptr<void, Free> scratch_;
  size_t scratch_bytes_ = 0;
  std::unique_ptr<Crew> crew_;
};

}  // namespace qna
