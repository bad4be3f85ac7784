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

class PackedWeights {
 public:
  PackedWeights() = default;
  explicit PackedWeights(size_t bytes)
      : memory_(std::aligned_alloc(kScratchAlignment,
                                   (bytes / kScratchAlignment + 1) * kScratchAlignment)) {
    if (!memory_) throw std::bad_alloc();
  }

  void* memory() const { return memory_.get(); }
  explicit operator bool() const { return memory_ != nullptr; }

  // Who packed them. Another implementation cannot read them.
  const Implementation* owner = nullptr;
  int64_t inner = 0;
  int64_t columns = 0;
  // Of a layer: how a pixel lies in memory.
  std::shared_ptr<const PackedLayout> layout;

 private:
  struct Free {
    void operator()(void* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<void, Free> memory_;
};

}  // namespace qna::kernels
