#include "qna/nn/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include "qna/base/error.h"
#include "qna/kernels/dropout.h"

namespace qna::nn {
namespace {

uint64_t draw_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

torch::Tensor factors(const torch::Tensor& x, double rate) {
  const torch::Tensor out = torch::empty(x.sizes(), torch::kFloat);
  const kernels::DropoutArgs args{
      .factors = out.data_ptr<float>(), .count = out.numel(), .rate = rate, .seed = draw_seed()};
  const int64_t groups = (args.count + kernels::kDropoutGroup - 1) / kernels::kDropoutGroup;
  at::parallel_for(0, groups, 8192,
                   [&](int64_t begin, int64_t end) { kernels::dropout_factors(args, begin, end); });
  return out.to(x.scalar_type());
}

}  // namespace

torch::Tensor dropout(const torch::Tensor& x, double rate, bool training) {
  check(rate >= 0 && rate < 1, "dropout: rate must be at least 0 and below 1, got {}", rate);
  if (!training || rate == 0) return x;
  if (!x.is_cpu()) return at::dropout(x, rate, true);
  return x * factors(x, rate);
}

}  // namespace qna::nn
