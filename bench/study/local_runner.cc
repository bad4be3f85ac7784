#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <torch/types.h>
#include <torch/version.h>

#include <chrono>

#include "bench/measure.h"
#include "bench/study/runner.h"
#include "qna/kernels/implementation.h"

namespace qna::bench::study {
namespace {

class LocalRunner final : public Runner {
 public:
  explicit LocalRunner(const SubjectKind& kind) : kind_(kind) {}

  void prepare(const Problem& problem, const std::string&, Row& row) override {
    layer_ = kind_.make(problem.shape);
    problem_ = &problem;
    for (auto& [name, parameter] : layer_.parameters) parameter.requires_grad_(problem.train);
    row.difference = problem.difference(run(), kind_.family);
    row.version =
        fmt::format("{} kernels, torch {}", kernels::chosen_implementation().name, TORCH_VERSION);
    count_memory(row);
  }

  double seconds() override {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void release() override {
    if (problem_ != nullptr) forget_gradients();
    layer_ = {};
    problem_ = nullptr;
    malloc_trim(0);
  }

 private:
  void forget_gradients() {
    problem_->x.mutable_grad() = at::Tensor();
    for (auto& [name, parameter] : layer_.parameters) parameter.mutable_grad() = at::Tensor();
  }

  at::Tensor run() {
    const at::AutoGradMode grad_mode(problem_->train);
    if (!problem_->train) return layer_.forward(problem_->x);
    forget_gradients();
    const at::Tensor y = layer_.forward(problem_->x);
    y.backward(problem_->gradient);
    return y.detach();
  }

  void count_memory(Row& row) {
    forget_gradients();
    const int64_t before = start_peak();
    run();
    row.peak_bytes = peak_allocated_bytes() - before;
    const auto map = static_cast<int64_t>(problem_->x.nbytes());  // the answer is as large
    int64_t wanted = map;
    if (problem_->train) {
      wanted += map;
      for (const auto& [name, parameter] : layer_.parameters) {
        wanted += static_cast<int64_t>(parameter.nbytes());
      }
    }
    row.extra_bytes = row.peak_bytes - wanted;
    row.memory = "counted";
  }

  const SubjectKind& kind_;
  Layer layer_;
  const Problem* problem_ = nullptr;
};

}  // namespace

void set_up_process(int threads) {
  count_allocations();
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
#endif
  at::set_num_threads(threads);
}

std::unique_ptr<Runner> make_local_runner(const SubjectKind& kind) {
  return std::make_unique<LocalRunner>(kind);
}

}  // namespace qna::bench::study
