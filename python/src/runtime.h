// Kernels run on torch's threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "qna/base/runtime.h"

namespace qna::python {

// Scratch memory stays with the calling thread for its next kernel: memory fresh from the system
// would be cleared page by page in every call.
class TorchRuntime : public Runtime {
 public:
  TorchRuntime();
  TorchRuntime(const TorchRuntime&) = delete;
  TorchRuntime& operator=(const TorchRuntime&) = delete;
  ~TorchRuntime() override;

  int workers() const override { return workers_; }
  void* scratch(size_t bytes) override;
  void for_each(int64_t count, Task task) override;

 private:
  struct Free {
    void operator()(void* memory) const {
      ::operator delete(memory, std::align_val_t(kScratchAlignment));
    }
  };
  struct Block {
    std::unique_ptr<void, Free> memory;
    size_t bytes = 0;
  };
  static Block& kept();

  const int workers_;
  Block scratch_;
};

}  // namespace qna::python
