#include "qna/nn/position_code.h"

#include <torch/nn/init.h>

#include <numbers>

#include "qna/base/error.h"

namespace qna::nn {
namespace {

constexpr double kEpsilon = 1e-6;
using config::kLearnedPlaces;

}  // namespace

PositionCodeImpl::PositionCodeImpl(PositionKind kind, int64_t features, const SineOptions& sines)
    : kind_(kind), features_(features), sines_(sines) {
  const int64_t divisor = kind == PositionKind::kSine ? 4 : 2;
  check(features >= divisor && features % divisor == 0,
        "PositionCode: features must be a multiple of {}, got {}", divisor, features);
  PositionCodeImpl::reset();
}

void PositionCodeImpl::reset() {
  if (kind_ != PositionKind::kLearned) return;
  row_embed = register_module("row_embed", torch::nn::Embedding(kLearnedPlaces, features_ / 2));
  col_embed = register_module("col_embed", torch::nn::Embedding(kLearnedPlaces, features_ / 2));
  torch::nn::init::uniform_(row_embed->weight);
  torch::nn::init::uniform_(col_embed->weight);
}

torch::Tensor PositionCodeImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  check(x.dim() == 4 && x.size(3) == features_,
        "PositionCode: the map must be [batch, height, width, {}], got {} dimensions", features_,
        x.dim());
  return kind_ == PositionKind::kSine ? forward_sine(x, mask) : forward_learned(x);
}

torch::Tensor PositionCodeImpl::forward_sine(const torch::Tensor& x,
                                             const torch::Tensor& mask) const {
  const auto options = x.options().dtype(torch::kFloat);
  const torch::Tensor inside =
      mask.defined() ? mask.to(torch::kFloat) : torch::ones({1, x.size(1), x.size(2)}, options);
  const auto code = [&](int axis) {
    // 1, 2, 3, ... inside the image, divided by its last: up to 1, whatever the size.
    const torch::Tensor place = inside.cumsum(axis);
    const torch::Tensor last = place.narrow(axis, place.size(axis) - 1, 1) + kEpsilon;
    return waves((sines_.centred ? place - 0.5 : place) / last);
  };
  return torch::cat({code(1), code(2)}, -1).to(x.scalar_type());
}

torch::Tensor PositionCodeImpl::at(const torch::Tensor& places) const {
  check(kind_ == PositionKind::kSine, "PositionCode: only sines have a code of any place");
  const torch::Tensor exact = places.to(torch::kFloat);
  return torch::cat({waves(exact.select(-1, 1)), waves(exact.select(-1, 0))}, -1)
      .to(places.scalar_type());
}

// The code of one axis: [...] from 0 to 1 -> [..., features / 2].
torch::Tensor PositionCodeImpl::waves(const torch::Tensor& places) const {
  // T^(2 i / n) for pairs of a sine and a cosine, n of them per axis.
  const int64_t n = features_ / 2;
  const torch::Tensor wavelength =
      torch::pow(sines_.temperature, torch::arange(0, n, 2, places.options()) * (1.0 / n));
  const double turns = 2 * std::numbers::pi * sines_.waves;
  const torch::Tensor phase = (places * turns).unsqueeze(-1) / wavelength;
  return torch::stack({phase.sin(), phase.cos()}, -1).flatten(-2);
}

torch::Tensor PositionCodeImpl::forward_learned(const torch::Tensor& x) {
  const auto table = [&](torch::nn::Embedding& embedding, int64_t size) {
    // Places beyond the table share its last vector, so that any map has a code.
    const auto places = torch::arange(size, x.options().dtype(torch::kLong));
    return embedding->forward(places.clamp_max(kLearnedPlaces - 1));
  };
  const torch::Tensor rows = table(row_embed, x.size(1)).unsqueeze(1);     // [H, 1, n]
  const torch::Tensor columns = table(col_embed, x.size(2)).unsqueeze(0);  // [1, W, n]
  const std::vector<int64_t> sizes = {x.size(1), x.size(2), features_ / 2};
  return torch::cat({columns.expand(sizes), rows.expand(sizes)}, -1).unsqueeze(0);
}

}  // namespace qna::nn
