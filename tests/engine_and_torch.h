// The engine and LibTorch's modules side by side: what the tests of one against the other share.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "qna/engine/model.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::testing {

using ops::testing::near;
using torch::Tensor;

// Of the largest number: what float32 may differ from float64 over a whole network.
inline constexpr double kTolerance = 1e-5;

// Some random networks lose more, as where a LayerNorm meets features that are nearly equal: there
// the torch modules in float32, `rough`, lose as much, and this many times that is allowed.
inline constexpr double kAsRough = 4;

inline ::testing::AssertionResult as_exact(const Tensor& got, const Tensor& exact,
                                           const Tensor& rough, double least = 1e-30) {
  const double scale = std::max(least, exact.abs().max().item<double>());
  const double lost = (rough.to(torch::kDouble) - exact).abs().max().item<double>();
  return near(got, exact, std::max(kTolerance, kAsRough * lost / scale), least);
}

// Every parameter and statistic matters, none has its initial value; maps keep about their size.
inline void randomize(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    Tensor& value = item.value();
    const int64_t terms = std::max(value.size(0), value.numel() / value.size(0));  // of a product
    value.add_(torch::randn_like(value),
               0.3 / std::sqrt(std::max(1.0, static_cast<double>(terms) / 8)));
  }
  for (auto& item : model.named_buffers()) {
    Tensor& value = item.value();
    if (!value.is_floating_point()) continue;
    if (item.key().ends_with("running_var")) {
      value.uniform_(0.5, 2);
    } else if (item.key().ends_with("weight")) {
      value.uniform_(0.3, 1);
    } else {
      value.normal_(0, 0.2);
    }
  }
  model.eval();
}

template <typename Module>
Module random_model(const auto& config, uint64_t seed) {
  torch::manual_seed(seed);
  Module model(config);
  randomize(*model);
  return model;
}

// A copy that computes in float64.
template <typename Module>
Module exact_copy(const Module& model) {
  Module copy(std::dynamic_pointer_cast<typename Module::ContainedType>(model->clone()));
  copy->to(torch::kDouble);
  copy->eval();
  return copy;
}

inline engine::ModelInfo info_for(int64_t channels) {
  engine::ModelInfo info;
  info.preprocess.mean.assign(channels, 0.5f);
  info.preprocess.std.assign(channels, 0.5f);
  return info;
}
inline engine::ModelInfo info_for_detector() {
  engine::ModelInfo info;
  info.preprocess.crop = {0, 0};
  return info;
}

// Both must be contiguous and stay; the mask may be undefined.
inline engine::Images images_of(const Tensor& x, const Tensor& mask = {}) {
  return {.batch = x.size(0),
          .height = x.size(1),
          .width = x.size(2),
          .pixels = x.const_data_ptr<float>(),
          .mask = mask.defined() ? static_cast<const uint8_t*>(mask.const_data_ptr()) : nullptr};
}

inline Tensor tensor_of(const engine::MapView& map) {
  return torch::from_blob(const_cast<float*>(map.data),
                          {map.batch, map.height, map.width, map.features}, torch::kFloat)
      .clone();
}

// Zeros where the map means nothing.
inline Tensor inside(const Tensor& map, const Tensor& mask) {
  return mask.defined() ? map.masked_fill(~mask.unsqueeze(-1), 0) : map;
}

// What of image `i` of a batch the engine shows: all of it, or as much as the mask leaves.
inline Tensor part_of(const Tensor& batch, int64_t i, const Tensor& shown) {
  if (!batch.defined()) return batch;
  return batch.slice(0, i, i + 1).slice(1, 0, shown.size(1)).slice(2, 0, shown.size(2));
}

// Maps that a visitor saw, [B, h, w, C]: of the whole batch, or one by one where there is a mask.
// exact, rough, mask: of the whole batch.
inline void expect_maps(const std::vector<Tensor>& seen, const Tensor& exact, const Tensor& rough,
                        const Tensor& mask, const std::string& what) {
  if (!mask.defined()) {
    ASSERT_EQ(seen.size(), 1) << what;
    EXPECT_TRUE(as_exact(seen[0], exact, rough)) << what;
    return;
  }
  ASSERT_EQ(static_cast<int64_t>(seen.size()), exact.size(0)) << what;
  for (int64_t i = 0; i < exact.size(0); ++i) {
    const Tensor taking_part = part_of(mask, i, seen[i]);
    EXPECT_EQ(taking_part.sum().item<int64_t>(), mask[i].sum().item<int64_t>()) << what;
    const auto part = [&](const Tensor& map) {
      return inside(part_of(map, i, seen[i]), taking_part);
    };
    EXPECT_TRUE(as_exact(inside(seen[i], taking_part), part(exact), part(rough)))
        << what << ", image " << i;
  }
}

enum class MaskKind { kNone, kRectangles, kHoles };

// Images begin at the top left, and their first row and column say how far they reach: holes are
// elsewhere.
inline Tensor random_mask(MaskKind kind, int64_t batch, int64_t height, int64_t width) {
  if (kind == MaskKind::kNone) return {};
  Tensor mask = torch::zeros({batch, height, width}, torch::kBool);
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t rows = torch::randint(1, height + 1, {}).item<int64_t>();
    const int64_t columns = torch::randint(1, width + 1, {}).item<int64_t>();
    Tensor image = mask[i].slice(0, 0, rows).slice(1, 0, columns);
    image.fill_(true);
    if (kind == MaskKind::kHoles) image.slice(0, 1).slice(1, 1).bernoulli_(0.7);
  }
  return mask;
}

// Images with NaN where there is none.
inline Tensor random_images(const Tensor& mask, at::IntArrayRef sizes) {
  const Tensor x = torch::randn(sizes);
  return mask.defined() ? x.masked_fill(~mask.unsqueeze(-1), std::nan("")) : x;
}

inline Tensor image_alone(const Tensor& batch, int64_t i) {
  return batch.defined() ? batch.slice(0, i, i + 1).contiguous() : batch;
}

}  // namespace qna::testing
