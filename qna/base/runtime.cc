#include "qna/base/runtime.h"

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace qna {

ThreadRuntime::ThreadRuntime(int workers) : workers_(workers < 1 ? 1 : workers) {}

void ThreadRuntime::Free::operator()(void* pointer) const { std::free(pointer); }

void* ThreadRuntime::scratch(size_t bytes) {
  const size_t rounded = (bytes / kScratchAlignment + 1) * kScratchAlignment;
  scratch_.reset(std::aligned_alloc(kScratchAlignment, rounded));
  if (!scratch_) throw std::bad_alloc();
  return scratch_.get();
}

void ThreadRuntime::for_each(int64_t count, const std::function<void(int64_t, int)>& task) {
  std::atomic<int64_t> next{0};
  const auto work = [&](int worker) {
    for (int64_t index = next++; index < count; index = next++) task(index, worker);
  };
  std::vector<std::jthread> threads;
  for (int worker = 1; worker < workers_ && worker < count; ++worker) {
    threads.emplace_back(work, worker);
  }
  work(0);
}

}  // namespace qna
