#include "bench/study/problem.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "qna/base/error.h"
#include "qna/checkpoint/tensor_bytes.h"

namespace qna::bench::study {

// Differences in the order of additions stay far below it.
constexpr double kTolerance = 1e-3;

Problem::Problem(const Case& shape, bool train, const std::set<std::string>& families)
    : shape(shape), train(train) {
  torch::manual_seed(2);
  x = torch::randn({1, shape.side, shape.side, shape.dim});
  gradient = torch::randn_like(x);
  const torch::NoGradGuard no_grad;
  for (const std::string& name : families) {
    const SubjectKind* first = first_of(name);
    if (first == nullptr) continue;
    Family& family = families_[name];
    family.layer = first->make(shape);
    family.answer = family.layer.forward(x).contiguous();
  }
  x.requires_grad_(train);
}

void Problem::write(const std::string& path, const std::set<std::string>& families) const {
  std::vector<std::pair<std::string, at::Tensor>> tensors = {{"x", x.detach()},
                                                             {"gradient", gradient}};
  for (const auto& [name, family] : families_) {
    if (!families.contains(name)) continue;
    tensors.emplace_back(name + ".answer", family.answer);
    for (const auto& [key, value] : family.layer.parameters) {
      tensors.emplace_back(name + "." + key, value.detach().contiguous());
    }
  }
  std::vector<format::TensorView> views;
  for (const auto& [name, tensor] : tensors) views.push_back(checkpoint::view_of(name, tensor));
  format::write_safetensors(path, views);
}

double Problem::difference(const at::Tensor& answer, const std::string& family) const {
  check(answer.sizes() == x.sizes(), "the answer has another shape than the input");
  const auto found = families_.find(family);
  if (found == families_.end()) return NAN;
  const torch::NoGradGuard no_grad;
  const at::Tensor& expected = found->second.answer;
  const double part = ((answer - expected).abs().max() / expected.abs().max()).item<double>();
  check(part <= kTolerance, "the answer differs by {:.2g} of the largest number", part);
  return part;
}

}  // namespace qna::bench::study
