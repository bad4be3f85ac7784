#include "runtime.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace qna::python {

TorchRuntime::TorchRuntime() : workers_(static_cast<int>(torch::stable::get_num_threads())) {}

TorchRuntime::~TorchRuntime() {
  if (scratch_.memory != nullptr) kept() = std::move(scratch_);
}

TorchRuntime::Block& TorchRuntime::kept() {
  thread_local Block block;
  return block;
}

void* TorchRuntime::scratch(size_t bytes) {
  scratch_ = std::exchange(kept(), {});  // so that a kernel within a kernel would take its own
  if (scratch_.bytes < bytes) {
    scratch_ = {};
    scratch_.memory.reset(::operator new(bytes, std::align_val_t(kScratchAlignment)));
    scratch_.bytes = bytes;
  }
  return scratch_.memory.get();
}

void TorchRuntime::for_each(int64_t count, Task task) {
  std::atomic<int64_t> next{0};
  const auto work = [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t index = next++; index < count; index = next++) {
        task(index, static_cast<int>(worker));
      }
    }
  };
  torch::stable::parallel_for(0, std::min<int64_t>(workers(), count), 1, work);
}

}  // namespace qna::python
