#include "qna/base/runtime.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace qna {
namespace {

// Longer than the steps between two layers, short beside a network: who sleeps wakes up late.
constexpr auto kWatch = std::chrono::microseconds(500);

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` is no longer `old`: awake at first, asleep later.
template <typename T>
void wait_while(const std::atomic<T>& value, T old) {
  const auto end = std::chrono::steady_clock::now() + kWatch;
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

// The workers beside the calling thread.
struct ThreadRuntime::Crew {
  explicit Crew(int helpers) {
    for (int i = 1; i <= helpers; ++i) {
      threads.emplace_back([this, i] { stay(i); });
    }
  }
  ~Crew() {
    task = nullptr;
    call();
  }

  void call() {
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
  }

  void stay(int worker) {
    uint32_t seen = 0;
    while (true) {
      wait_while(round, seen);
      ++seen;
      if (task == nullptr) return;
      work(worker);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
    }
  }

  void work(int worker) {
    try {
      for (int64_t i = next++; i < count; i = next++) (*task)(i, worker);
    } catch (...) {
      next = count;  // nobody takes another
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  void run(int64_t tasks, const Task& run_task) {
    task = &run_task;
    count = tasks;
    next = 0;
    error = nullptr;
    busy.store(static_cast<int>(threads.size()), std::memory_order_relaxed);
    call();
    work(0);
    for (int left = busy.load(std::memory_order_acquire); left > 0;
         left = busy.load(std::memory_order_acquire)) {
      wait_while(busy, left);
    }
    if (error) std::rethrow_exception(error);
  }

  const Task* task = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  std::atomic<uint32_t> round{0};
  std::atomic<int> busy{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::jthread> threads;  // last: they are joined before the rest goes
};

ThreadRuntime::ThreadRuntime(int workers) : workers_(workers < 1 ? 1 : workers) {}

ThreadRuntime::~ThreadRuntime() = default;

void ThreadRuntime::Free::operator()(void* pointer) const { std::free(pointer); }

void* ThreadRuntime::scratch(size_t bytes) {
  if (scratch_ == nullptr || bytes > scratch_bytes_) {
    const size_t rounded = (bytes / kScratchAlignment + 1) * kScratchAlignment;
    scratch_.reset();  // before the larger one is there
    scratch_bytes_ = 0;
    scratch_.reset(std::aligned_alloc(kScratchAlignment, rounded));
    if (!scratch_) throw std::bad_alloc();
    scratch_bytes_ = rounded;
  }
  return scratch_.get();
}

void ThreadRuntime::for_each(int64_t count, Task task) {
  if (workers_ == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  if (crew_ == nullptr) crew_ = std::make_unique<Crew>(workers_ - 1);
  crew_->run(count, task);
}

}  // namespace qna
