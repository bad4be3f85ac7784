#include "qna/checkpoint/weight_copy.h"

#include <algorithm>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/checkpoint/tensor_bytes.h"

namespace qna::checkpoint {
namespace {

// A tensor of the file for a parameter of another size; undefined where there is no way.
torch::Tensor fit(const std::string& name, const torch::Tensor& from, const torch::Tensor& to) {
  if (from.dim() != to.dim()) return {};
  if (name.ends_with("attention.relative_bias") && from.size(2) == to.size(2) &&
      from.size(0) % 2 == 1 && from.size(1) % 2 == 1) {
    return nn::resize_relative_bias(from, {(to.size(0) + 1) / 2, (to.size(1) + 1) / 2});
  }
  if (name.starts_with("head.qna.") && from.dim() == 4 && from.size(2) == to.size(2) &&
      from.size(3) == to.size(3)) {
    return models::resize_window_table(from, {to.size(0), to.size(1)});
  }
  return {};
}

}  // namespace

WeightCopy::WeightCopy(const std::string& path, const format::SafetensorsFile& file)
    : path_(path), file_(file) {}

void WeightCopy::add(const std::string& name, const torch::Tensor& to, OtherRows other_rows) {
  const format::TensorView* view = file_.find(name);
  check(view != nullptr, "{}: there is no tensor '{}', which the model needs", path_, name);
  used_.insert(name);
  torch::Tensor from = tensor_from(*view, path_);
  if (from.sizes() == to.sizes()) {
    copies_.emplace_back(to, from);
    return;
  }
  const std::string sizes =
      fmt::format("{} -> {}", in_brackets(from.sizes()), in_brackets(to.sizes()));
  if (other_rows == OtherRows::kKeepInitial && from.dim() == to.dim() &&
      from.sizes().slice(1) == to.sizes().slice(1)) {
    report_.push_back(fmt::format("{}: {}, newly initialised", name, sizes));
    return;
  }
  from = fit(name, from.to(torch::kFloat), to);
  check(from.defined(), "{}: '{}' must be {}, got {}", path_, name, in_brackets(to.sizes()),
        in_brackets(view->shape));
  report_.push_back(fmt::format("{}: {}, resized bicubically", name, sizes));
  copies_.emplace_back(to, from);
}

void WeightCopy::add_rows(const std::string& name, const torch::Tensor& to,
                          const std::vector<int64_t>& rows) {
  const format::TensorView* view = file_.find(name);
  check(view != nullptr, "{}: there is no tensor '{}', which the model needs", path_, name);
  used_.insert(name);
  const torch::Tensor from = tensor_from(*view, path_).to(torch::kFloat);
  check(from.dim() == to.dim() && from.sizes().slice(1) == to.sizes().slice(1) &&
            from.size(0) > std::max<int64_t>(1, std::ranges::max(rows)),
        "{}: '{}' must be {} but for the number of its rows, got {}", path_, name,
        in_brackets(to.sizes()), in_brackets(view->shape));
  const torch::Tensor mean = from.slice(0, 0, -1).mean(0);
  std::vector<torch::Tensor> chosen;
  for (const int64_t row : rows) chosen.push_back(row == kMeanRow ? mean : from[row]);
  copies_.emplace_back(to, torch::stack(chosen));
}

void WeightCopy::leave(const std::string& name) {
  report_.push_back(fmt::format("{}: not in the file, newly initialised", name));
}

void WeightCopy::ignore(const std::function<bool(const std::string&)>& fits) {
  for (const format::TensorView& view : file_.tensors()) {
    if (fits(view.name)) used_.insert(view.name);
  }
}

LoadReport WeightCopy::finish() {
  ignore([](const std::string& name) { return name.starts_with(engine::kTrainingPrefix); });
  for (const format::TensorView& view : file_.tensors()) {
    check(used_.contains(view.name), "{}: the model has no place for the tensor '{}'", path_,
          view.name);
  }
  const torch::NoGradGuard no_grad;
  for (auto& [to, from] : copies_) to.copy_(from);
  return std::move(report_);
}

}  // namespace qna::checkpoint
