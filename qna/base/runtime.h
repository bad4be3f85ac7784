// What a kernel may ask of its surroundings: workers and scratch memory. Kernels start no threads
// and take all memory that matters from here (the plain reference loops excepted), so the same
// kernel runs under LibTorch's pool and allocator, or alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace qna {

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
  virtual void for_each(int64_t count, const std::function<void(int64_t, int)>& task) = 0;
};

inline constexpr size_t kScratchAlignment = 64;

// Workers are std::threads that live for one for_each call. One worker means the calling thread.
class ThreadRuntime : public Runtime {
 public:
  explicit ThreadRuntime(int workers = 1);
  int workers() const override { return workers_; }
  void* scratch(size_t bytes) override;
  void for_each(int64_t count, const std::function<void(int64_t, int)>& task) override;

 private:
  struct Free {
    void operator()(void* pointer) const;
  };
  int workers_;
  std::unique_ptr<void, Free> scratch_;
};

}  // namespace qna
