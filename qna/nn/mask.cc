#include "qna/nn/mask.h"

#include <torch/nn/functional/padding.h>

#include <algorithm>

namespace qna::nn {
namespace {

// For each row of [B, N]: one more than the place of the last true, at least 1.
std::vector<int64_t> ends(const torch::Tensor& taking_part) {
  const torch::Tensor places =
      torch::arange(1, taking_part.size(1) + 1, taking_part.options().dtype(torch::kLong));
  const torch::Tensor last = (places * taking_part).amax(1).clamp_min(1).cpu();
  return {last.const_data_ptr<int64_t>(), last.const_data_ptr<int64_t>() + last.numel()};
}

}  // namespace

torch::Tensor zero_masked(const torch::Tensor& x, const torch::Tensor& mask) {
  return fill_masked(x, mask, 0);
}

torch::Tensor fill_masked(const torch::Tensor& x, const torch::Tensor& mask, double value) {
  return mask.defined() ? x.masked_fill(~mask.unsqueeze(-1), value) : x;
}

torch::Tensor every_nth(const torch::Tensor& mask, int64_t n) {
  return mask.defined() ? mask.slice(1, 0, std::nullopt, n).slice(2, 0, std::nullopt, n) : mask;
}

std::vector<torch::Tensor> on_each_image(
    const torch::Tensor& x, const torch::Tensor& mask,
    const std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>& run) {
  if (!mask.defined() || mask.numel() == 0) return {run(x, mask)};
  const std::vector<int64_t> heights = ends(mask.any(2));
  const std::vector<int64_t> widths = ends(mask.any(1));
  if (std::ranges::all_of(heights, [&](int64_t height) { return height == x.size(1); }) &&
      std::ranges::all_of(widths, [&](int64_t width) { return width == x.size(2); })) {
    return {run(x, mask)};
  }
  std::vector<torch::Tensor> results;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const auto cut = [&](const torch::Tensor& map) {
      return map.slice(0, i, i + 1).slice(1, 0, heights[i]).slice(2, 0, widths[i]);
    };
    results.push_back(run(cut(x), cut(mask)));
  }
  return results;
}

torch::Tensor as_batch(const std::vector<torch::Tensor>& maps, int64_t height, int64_t width) {
  namespace F = torch::nn::functional;
  std::vector<torch::Tensor> padded;
  for (const torch::Tensor& map : maps) {
    const F::PadFuncOptions options({0, 0, 0, width - map.size(2), 0, height - map.size(1)});
    padded.push_back(F::pad(map, options));
  }
  return padded.size() == 1 ? padded.front() : torch::cat(padded);
}

}  // namespace qna::nn
