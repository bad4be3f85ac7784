// What a thread that runs a model needs of its own: workers and memory. Keep it between calls:
// after the first call of a shape nothing is allocated any more.
#pragma once

#include <memory>

namespace qna::engine {

class Context {
 public:
  // threads: that compute, the calling one among them; 0: one per core.
  explicit Context(int threads = 0);
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  int threads() const;
  // Bytes that are held for maps and scratch.
  size_t bytes() const;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace qna::engine
