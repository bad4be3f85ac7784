// ResNets against torchvision's. Its weights are made by a formula here and in
// golden/make_resnet.py, so that the file only holds the results.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "qna/engine/resnet.h"
#include "qna/models/resnet.h"
#include "tests/engine_parts.h"
#include "tests/support/safetensors.h"

namespace qna {
namespace {

using config::ResNetConfig;
using models::ResNet;
using torch::Tensor;

// From -1 to 1, by name and place.
Tensor noise(const std::string& name, at::IntArrayRef shape) {
  double seed = 31 * static_cast<double>(name.size());
  for (const char letter : name) seed += letter;
  Tensor out = torch::empty(shape, torch::kDouble);
  double* values = out.mutable_data_ptr<double>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    const double x = std::sin(static_cast<double>(i) * 12.9898 + seed * 78.233) * 43758.5453;
    values[i] = 2 * (x - std::floor(x)) - 1;
  }
  return out;
}

void fill(const std::string& name, Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const Tensor value = noise(name, tensor.sizes());
  if (tensor.dim() == 4) {
    tensor.copy_(value * std::sqrt(3.0 / static_cast<double>(tensor[0].numel())));
  } else if (name.ends_with("running_var") || name.ends_with("weight")) {
    tensor.copy_(1 + 0.5 * value);
  } else {
    tensor.copy_(0.2 * value);
  }
}

struct Case {
  const char* name;
  ResNetConfig config;
  std::array<int64_t, 2> size;
};

class GoldenResNet : public ::testing::TestWithParam<Case> {};

TEST_P(GoldenResNet, LastMap) {
  at::set_num_threads(1);
  ResNet model(GetParam().config);
  for (auto& item : model->named_parameters()) fill(item.key(), item.value());
  for (auto& item : model->named_buffers()) fill(item.key(), item.value());
  const auto [height, width] = GetParam().size;
  const Tensor images = noise("images", {1, height, width, 3}).to(torch::kFloat);
  const Tensor expected =
      testing::read_safetensors(QNA_GOLDEN_DIR "/resnet.safetensors").at(GetParam().name);
  const Tensor map = model->forward_features(images);
  ASSERT_EQ(map.sizes(), expected.sizes());
  // float32 on both sides, through up to 50 layers.
  EXPECT_LT(((map - expected).abs().max() / expected.abs().max()).item<double>(), 2e-5);
  const Tensor everywhere = torch::ones({1, height, width}, torch::kBool);
  EXPECT_LT((model->forward_features(images, everywhere) - map).abs().max().item<double>(), 1e-4);

  const engine::ModelFile file = testing::file_of(*model);
  const engine::ResNet served(engine::Tensors(file, kernels::WeightType::kFloat32),
                              GetParam().config);
  testing::PartContext part;
  Tensor by_engine = torch::empty_like(expected);
  served.run_features({1, height, width, images.const_data_ptr<float>(), nullptr},
                      testing::map_of(by_engine), part.worker);
  EXPECT_LT(((by_engine - expected).abs().max() / expected.abs().max()).item<double>(), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Torchvision, GoldenResNet,
    ::testing::Values(Case{"resnet18", {.depth = 18}, {64, 50}},
                      Case{"resnet50", {.depth = 50}, {33, 65}},
                      Case{"resnet50_dilated", {.depth = 50, .dilation = true}, {32, 48}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace qna
