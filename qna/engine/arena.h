// Memory for a network's maps: taken and given back in the order of scopes. After the first pass of
// a shape it is one piece of the size that was needed, and nothing is allocated any more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "qna/base/runtime.h"

namespace qna::engine {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  size_t bytes() const {
    size_t sum = 0;
    for (const Piece& piece : pieces_) sum += piece.bytes;
    return sum;
  }

 private:
  friend class Scope;
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  struct Piece {
    explicit Piece(size_t size)
        : memory(static_cast<std::byte*>(std::aligned_alloc(kScratchAlignment, size))),
          bytes(size) {
      if (!memory) throw std::bad_alloc();
    }
    std::unique_ptr<std::byte, Free> memory;
    size_t bytes;
  };

  void* take(size_t wanted) {
    const size_t bytes = (wanted / kScratchAlignment + 1) * kScratchAlignment;
    in_use_ += bytes;
    most_ = std::max(most_, in_use_);
    while (piece_ < pieces_.size() && used_ + bytes > pieces_[piece_].bytes) {
      ++piece_;
      used_ = 0;
    }
    if (piece_ == pieces_.size()) pieces_.emplace_back(bytes);
    void* const start = pieces_[piece_].memory.get() + used_;
    used_ += bytes;
    return start;
  }

  // Back to a place that was noted. When all is given back, several pieces become one.
  void go_back(size_t piece, size_t used, size_t in_use) {
    piece_ = piece;
    used_ = used;
    in_use_ = in_use;
    if (in_use == 0 && pieces_.size() > 1) {
      pieces_.clear();
      pieces_.emplace_back(most_);
    }
  }

  std::vector<Piece> pieces_;
  size_t piece_ = 0;   // the current one
  size_t used_ = 0;    // of the current piece
  size_t in_use_ = 0;  // of all
  size_t most_ = 0;    // that ever were in use
};

// What was taken in a scope is given back at its end.
class Scope {
 public:
  explicit Scope(Arena& arena)
      : arena_(arena), piece_(arena.piece_), used_(arena.used_), in_use_(arena.in_use_) {}
  ~Scope() { arena_.go_back(piece_, used_, in_use_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  float* floats(int64_t count) { return static_cast<float*>(arena_.take(count * sizeof(float))); }
  uint8_t* bytes(int64_t count) { return static_cast<uint8_t*>(arena_.take(count)); }

 private:
  Arena& arena_;
  const size_t piece_, used_, in_use_;
};

}  // namespace qna::engine
