// Contexts for calls that come from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "qna/engine/context.h"

namespace qna::c {

// Holds as many as were ever needed at the same time.
class ContextPool {
 public:
  // A context that nobody else has until this goes.
  class Lease {
   public:
    Lease(ContextPool& pool, std::unique_ptr<engine::Context> context, int threads)
        : pool_(pool), context_(std::move(context)), threads_(threads) {}
    ~Lease() { pool_.give_back(std::move(context_), threads_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    engine::Context& context() const { return *context_; }

   private:
    ContextPool& pool_;
    std::unique_ptr<engine::Context> context_;
    const int threads_;
  };

  Lease take();

  // Of the contexts that are taken from now on.
  void set_threads(int threads);

 private:
  void give_back(std::unique_ptr<engine::Context> context, int threads) noexcept;

  std::mutex mutex_;
  int threads_ = 0;
  size_t made_ = 0;                                     // contexts
  std::vector<std::unique_ptr<engine::Context>> free_;  // all with threads_
};

}  // namespace qna::c
