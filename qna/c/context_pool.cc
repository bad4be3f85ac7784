#include "qna/c/context_pool.h"

namespace qna::c {

ContextPool::Lease ContextPool::take() {
  std::unique_lock lock(mutex_);
  const int threads = threads_;
  if (free_.empty()) {
    // Giving back must not fail, so there is room for all that are out.
    free_.reserve(++made_);
    lock.unlock();
    return {*this, std::make_unique<engine::Context>(threads), threads};
  }
  std::unique_ptr<engine::Context> context = std::move(free_.back());
  free_.pop_back();
  return {*this, std::move(context), threads};
}

void ContextPool::set_threads(int threads) {
  std::vector<std::unique_ptr<engine::Context>> old;  // goes without the lock
  const std::lock_guard lock(mutex_);
  if (threads == threads_) return;
  old.reserve(made_);
  old.swap(free_);
  threads_ = threads;
}

void ContextPool::give_back(std::unique_ptr<engine::Context> context, int threads) noexcept {
  const std::lock_guard lock(mutex_);
  if (threads == threads_) free_.push_back(std::move(context));
}

}  // namespace qna::c
