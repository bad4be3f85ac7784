// Cuts one block of scratch memory into aligned arrays. Run once without memory to learn the size,
// then again with it: the same code says what is needed and where it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "qna/base/runtime.h"

namespace qna::kernels {

class ScratchArena {
 public:
  explicit ScratchArena(void* memory = nullptr) : memory_(static_cast<std::byte*>(memory)) {}

  template <typename T>
  T* take(int64_t count) {
    std::byte* start = memory_ == nullptr ? nullptr : memory_ + bytes_;
    const size_t size = static_cast<size_t>(count) * sizeof(T);
    bytes_ += (size + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return reinterpret_cast<T*>(start);
  }

  // A list of what make(arena) cuts out, `count` times, such as each worker's memory.
  template <typename Make>
  auto* take_each(int64_t count, const Make& make) {
    using T = decltype(make(*this));
    static_assert(std::is_trivially_copyable_v<T>);
    T* list = take<T>(count);
    for (int64_t i = 0; i < count; ++i) {
      const T one = make(*this);
      if (list != nullptr) new (list + i) T(one);
    }
    return list;
  }

  size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  size_t bytes_ = 0;
};

}  // namespace qna::kernels
