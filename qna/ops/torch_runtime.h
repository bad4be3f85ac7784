// Kernels run on LibTorch's threads, with scratch from its allocator.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <atomic>

#include "qna/base/half.h"
#include "qna/base/runtime.h"
#include "qna/ops/geometry.h"

namespace qna::ops {

// Scratch memory stays with the calling thread for its next kernel: memory fresh from the system
// would be cleared page by page in every call.
class TorchRuntime : public Runtime {
 public:
  TorchRuntime() = default;
  TorchRuntime(const TorchRuntime&) = delete;
  TorchRuntime& operator=(const TorchRuntime&) = delete;
  ~TorchRuntime() override {
    if (scratch_.defined()) kept() = std::move(scratch_);
  }

  // Gives back what this thread keeps.
  static void release_scratch() { kept().reset(); }

  int workers() const override { return workers_; }

  void* scratch(size_t bytes) override {
    // One cache line more than asked for: at::empty promises 64 bytes today, not in its contract.
    const auto size = static_cast<int64_t>(bytes + kScratchAlignment);
    scratch_ = std::move(kept());  // so that a kernel within a kernel would take its own
    if (!scratch_.defined() || scratch_.numel() < size) {
      scratch_.reset();
      scratch_ = at::empty({size}, at::kByte);
    }
    const auto start = reinterpret_cast<uintptr_t>(scratch_.data_ptr());
    return reinterpret_cast<void*>((start + kScratchAlignment - 1) / kScratchAlignment *
                                   kScratchAlignment);
  }

  void for_each(int64_t count, Task task) override {
    std::atomic<int64_t> next{0};
    at::parallel_for(0, std::min<int64_t>(workers(), count), 1, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker) {
        for (int64_t index = next++; index < count; index = next++) {
          task(index, static_cast<int>(worker));
        }
      }
    });
  }

 private:
  static at::Tensor& kept() {
    thread_local at::Tensor tensor;
    return tensor;
  }

  const int workers_ = at::in_parallel_region() ? 1 : at::get_num_threads();
  at::Tensor scratch_;
};

// Calls run(T{}) with the kernels' type for the tensor's dtype, which must have a fused kernel.
template <typename Run>
void dispatch_type(at::ScalarType type, const Run& run) {
  if (type == at::kFloat) return run(float{});
  if (type == at::kBFloat16) return run(BFloat16{});
  if (type == at::kHalf) return run(Float16{});
  TORCH_INTERNAL_ASSERT(false, "no kernel for this dtype");
}

template <typename T>
T* pointer(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// Small tables are float32 for the kernels.
inline OptionalTensor as_table(const OptionalTensor& tensor) {
  if (!tensor.has_value() || !tensor->defined()) return std::nullopt;
  return tensor->to(at::kFloat).contiguous();
}

inline const float* table_pointer(const OptionalTensor& table) {
  return table.has_value() ? table->const_data_ptr<float>() : nullptr;
}

inline const uint8_t* mask_pointer(const OptionalTensor& mask) {
  return mask.has_value() ? reinterpret_cast<const uint8_t*>(mask->const_data_ptr<bool>())
                          : nullptr;
}

}  // namespace qna::ops
