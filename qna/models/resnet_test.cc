// ResNet: torchvision's names and sizes, and that an image's batch does not matter. Its numbers are
// compared with torchvision's in tests/golden_resnet_test.cc.
#include "qna/models/resnet.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <limits>

#include "qna/ops/tensors_testonly.h"

namespace qna::models {
namespace {

using namespace config;

using ops::testing::expect_complaint;
using ops::testing::near;
using torch::Tensor;

// Every parameter and statistic matters.
ResNet make(const ResNetConfig& config) {
  torch::manual_seed(7);
  ResNet model(config);
  for (const auto& item : model->named_buffers()) {
    Tensor buffer = item.value();
    const bool scale = item.key().ends_with("weight") || item.key().ends_with("running_var");
    scale ? buffer.uniform_(0.5, 1.2) : buffer.normal_(0, 0.2);
  }
  model->eval();
  return model;
}

// As torchvision counts: scale and shift of BatchNorm are parameters there.
int64_t torchvision_parameters(const ResNet& model) {
  int64_t count = 0;
  for (const auto& item : model->named_parameters()) count += item.value().numel();
  for (const auto& item : model->named_buffers()) {
    if (!item.key().ends_with("running_mean") && !item.key().ends_with("running_var")) {
      count += item.value().numel();
    }
  }
  return count;
}

TEST(ResNet, TorchvisionsSizes) {
  const struct {
    int64_t depth, with_head, tensors;
  } rows[] = {{18, 11689512, 102}, {50, 25557032, 267}, {101, 44549160, 522}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.depth);
    const ResNetConfig body{.depth = row.depth};
    const int64_t head = body.features() * 1000 + 1000;
    EXPECT_EQ(torchvision_parameters(ResNet(body)), row.with_head - head);
    const ResNet model(ResNetConfig{.depth = row.depth, .classes = 1000});
    EXPECT_EQ(torchvision_parameters(model), row.with_head);
    // torchvision's count of tensors without num_batches_tracked, one per norm.
    EXPECT_EQ(
        static_cast<int64_t>(model->named_parameters().size() + model->named_buffers().size()),
        row.tensors);
  }
}

TEST(ResNet, TorchvisionsNames) {
  const ResNet model(ResNetConfig{.depth = 50, .classes = 10});
  const auto parameters = model->named_parameters();
  const auto buffers = model->named_buffers();
  const auto sizes = [](const Tensor* tensor) {
    return tensor ? tensor->sizes().vec() : std::vector<int64_t>{};
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes(parameters.find("conv1.weight")), (Sizes{64, 3, 7, 7}));
  EXPECT_EQ(sizes(parameters.find("layer1.0.conv1.weight")), (Sizes{64, 64, 1, 1}));
  EXPECT_EQ(sizes(parameters.find("layer2.0.conv2.weight")), (Sizes{128, 128, 3, 3}));
  EXPECT_EQ(sizes(parameters.find("layer3.0.downsample.0.weight")), (Sizes{1024, 512, 1, 1}));
  EXPECT_EQ(sizes(parameters.find("layer3.5.conv3.weight")), (Sizes{1024, 256, 1, 1}));
  EXPECT_EQ(sizes(parameters.find("fc.weight")), (Sizes{10, 2048}));
  for (const char* part : {"weight", "bias", "running_mean", "running_var"}) {
    EXPECT_EQ(sizes(buffers.find(std::string("bn1.") + part)), (Sizes{64}));
    EXPECT_EQ(sizes(buffers.find(std::string("layer4.0.downsample.1.") + part)), (Sizes{2048}));
  }
}

TEST(ResNet, FrozenNormIsBatchNormInEvaluation) {
  torch::manual_seed(8);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 6, 3).stride(2).padding(1).bias(false));
  torch::nn::BatchNorm2d batch_norm(6);
  batch_norm->eval();
  FrozenBatchNorm frozen(6);
  {
    const torch::NoGradGuard no_grad;
    batch_norm->weight.uniform_(0.5, 2);
    batch_norm->bias.normal_();
    batch_norm->running_mean.normal_();
    batch_norm->running_var.uniform_(0.5, 2);
    frozen->weight.copy_(batch_norm->weight);
    frozen->bias.copy_(batch_norm->bias);
    frozen->running_mean.copy_(batch_norm->running_mean);
    frozen->running_var.copy_(batch_norm->running_var);
  }
  const Tensor x = torch::randn({2, 3, 9, 8});
  EXPECT_TRUE(near(frozen->behind(*conv, x), batch_norm->forward(conv->forward(x)), 1e-5));
}

TEST(ResNet, Sizes) {
  for (const auto& [config, stride] : {std::pair{ResNetConfig{.depth = 18}, 32},
                                       {ResNetConfig{.depth = 50, .dilation = true}, 16}}) {
    ResNet model = make(config);
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(config.stride(), stride);
    for (const auto& [height, width] : {std::pair{32, 64}, {33, 31}, {1, 1}}) {
      const Tensor map = model->forward_features(torch::randn({1, height, width, 3}));
      const std::vector<int64_t> expected = {1, (height + stride - 1) / stride,
                                             (width + stride - 1) / stride, config.features()};
      EXPECT_EQ(map.sizes(), at::IntArrayRef(expected));
      const Tensor mask = model->mask_of(torch::ones({1, height, width}, torch::kBool));
      EXPECT_EQ(mask.sizes(), map.sizes().slice(0, 3));
    }
  }
}

// With whatever stands in the padding, even what is no number.
TEST(ResNet, AnImagesBatchDoesNotMatter) {
  for (const ResNetConfig& config : {ResNetConfig{.depth = 18}, ResNetConfig{.depth = 50},
                                     ResNetConfig{.depth = 50, .dilation = true}}) {
    SCOPED_TRACE(config.depth);
    ResNet model = make(config);
    const torch::NoGradGuard no_grad;
    // Even and odd numbers of pixels and of positions in all the maps between.
    for (const auto& [height, width] : {std::pair{47, 90}, {64, 33}, {96, 50}, {1, 77}}) {
      Tensor images = torch::full({2, 96, 110, 3}, std::numeric_limits<float>::quiet_NaN());
      Tensor mask = torch::zeros({2, 96, 110}, torch::kBool);
      const Tensor image = torch::randn({1, height, width, 3});
      images[0].normal_();
      mask[0].fill_(true);
      images[1].slice(0, 0, height).slice(1, 0, width).copy_(image[0]);
      mask[1].slice(0, 0, height).slice(1, 0, width).fill_(true);
      const Tensor alone = model->forward_features(image);
      const Tensor both = model->forward_features(images, mask);
      EXPECT_TRUE(
          near(both[1].slice(0, 0, alone.size(1)).slice(1, 0, alone.size(2)), alone[0], 1e-5))
          << height << " x " << width;
      EXPECT_EQ(model->mask_of(mask)[1].sum().item<int64_t>(), alone.size(1) * alone.size(2));
      EXPECT_TRUE(near(model->forward(images, mask)[1], model->forward(image)[0], 1e-5));
    }
  }
}

TEST(ResNet, GradientsReachAllButWhatIsFrozen) {
  ResNet model = make({.depth = 18});
  model->train();
  model->freeze_first_stage();
  Tensor mask = torch::ones({1, 40, 40}, torch::kBool);
  mask.slice(2, 30).fill_(false);
  model->forward(torch::randn({1, 40, 40, 3}), mask).square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    const bool frozen = item.key().starts_with("conv1") || item.key().starts_with("layer1");
    const Tensor gradient = item.value().grad();
    ASSERT_EQ(gradient.defined(), !frozen) << item.key();
    EXPECT_TRUE(frozen || gradient.abs().max().item<double>() > 0) << item.key();
  }
}

TEST(ResNet, WhatIsWrong) {
  expect_complaint([] { ResNet(ResNetConfig{.depth = 34}); }, {"depth", "18, 50 or 101", "34"});
  expect_complaint([] { ResNet(ResNetConfig{.depth = 18, .dilation = true}); }, {"dilation", "18"});
  ResNet model(ResNetConfig{.depth = 18});
  expect_complaint(
      [&] {
        model->forward_features(torch::zeros({1, 3, 8, 8}));
      },
      {"images", "[1, 3, 8, 8]"});
  expect_complaint(
      [&] {
        model->forward_features(torch::zeros({1, 8, 8, 3}), torch::zeros({1, 8, 8}));
      },
      {"mask must be bool"});
}

}  // namespace
}  // namespace qna::models
