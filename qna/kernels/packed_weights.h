// Weights in the order one implementation wants them: packed once, used by many calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "qna/base/runtime.h"

namespace qna::kernels {

struct Implementation;
struct PackedLayout;

// How packed weights lie in memory. bfloat16 is half as large and rounds them to 8 bits of
// precision; arithmetic, and everything that is no weight of a product, stays float32.
enum class WeightType { kFloat32, kBFloat16 };

class PackedWeights {
 public:
  PackedWeights() = default;
  explicit PackedWeights(size_t bytes)
      : bytes_((bytes / kScratchAlignment + 1) * kScratchAlignment),
        memory_(std::aligned_alloc(kScratchAlignment, bytes_)) {
    if (!memory_) throw std::bad_alloc();
  }

  void* memory() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return memory_ != nullptr; }

  // Who packed them. Another implementation cannot read them.
  const Implementation* owner = nullptr;
  int64_t inner = 0;
  int64_t columns = 0;
  WeightType type = WeightType::kFloat32;
  // Of a layer: how a pixel lies in memory.
  std::shared_ptr<const PackedLayout> layout;

 private:
  struct Free {
    void operator()(void* pointer) const { std::free(pointer); }
  };
  size_t bytes_ = 0;
  std::unique_ptr<void, Free> memory_;
};

}  // namespace qna::kernels
