// The network: sizes, masks, batches, gradients, number types, copies.
#include "qna/models/qna_vit.h"

#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/functional/upsampling.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "qna/config/registry.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::models {
namespace {

using namespace config;

using ops::testing::expect_complaint;
using ops::testing::near;
using ops::testing::same;
using torch::Tensor;

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new ops::testing::OneThread);

// Three stages with blocks of both kinds.
QnAViTConfig tiny() {
  return {.image_size = {32, 32},
          .classes = 5,
          .base_dim = 8,
          .stages = {{.qna_blocks = 1, .qna_heads = 2},
                     {.attention_blocks = 1, .qna_blocks = 1, .qna_heads = 4, .window = {3, 3}},
                     {.attention_blocks = 1, .qna_heads = 8, .window = {4, 4}}}};
}

// Every parameter and running statistic matters, none is at its initial value.
QnAViT make(const QnAViTConfig& config, uint64_t seed = 61) {
  torch::manual_seed(seed);
  QnAViT model(config);
  torch::NoGradGuard no_grad;
  for (Tensor& parameter : model->parameters()) {
    parameter.add_(torch::randn_like(parameter), 0.1);
  }
  if (model->stem && model->stem->norm) {
    model->stem->norm->running_mean.normal_(0, 0.3);
    model->stem->norm->running_var.uniform_(0.5, 2);
  }
  model->eval();
  return model;
}

int64_t up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

struct Variant {
  std::string what;
  QnAViTConfig config;
};

// All stems, ways of down-sampling and heads, and whatever else looks at more than one position.
std::vector<Variant> variants() {
  std::vector<Variant> list;
  const auto add = [&](std::string what, const auto& change) {
    QnAViTConfig config = tiny();
    change(config);
    list.push_back({std::move(what), config});
  };
  for (const auto& [stem, stem_name] :
       {std::pair{StemKind::kPatch, "patch"}, std::pair{StemKind::kConv, "conv"},
        std::pair{StemKind::kResNet, "resnet"},
        std::pair{StemKind::kEfficientNet, "efficientnet"}}) {
    for (const auto& [way, way_name] :
         {std::pair{Downsample::kQnA, "qna"}, std::pair{Downsample::kPatchMerging, "patch_merging"},
          std::pair{Downsample::kConvPool, "conv_pool"}}) {
      for (const auto& [head, head_name] :
           {std::pair{HeadKind::kGap, "gap"}, std::pair{HeadKind::kQnAv1, "qnav1"},
            std::pair{HeadKind::kQnAv2, "qnav2"}}) {
        add(fmt::format("{}, {}, {}", stem_name, way_name, head_name),
            [&, s = stem, w = way, h = head](QnAViTConfig& c) {
              c.stem = s;
              if (s == StemKind::kEfficientNet) c.image_size = {128, 128};
              c.downsample = w;
              c.head = h;
            });
      }
    }
  }
  for (const auto& [mixer, name] :
       {std::pair{LocalMixer::kSasa, "sasa"}, std::pair{LocalMixer::kWindow, "window"},
        std::pair{LocalMixer::kHalo, "halo"}, std::pair{LocalMixer::kConv, "conv"},
        std::pair{LocalMixer::kDepthwise, "depthwise"}}) {
    add(fmt::format("mixer {}", name), [&, m = mixer](QnAViTConfig& c) {
      c.local_mixer = m;
      c.stages[0].window = {3, 4};
      c.stages[1].qna_blocks = 2;  // the second with shifted windows
    });
  }
  for (const auto& [way, name] :
       {std::pair{Downsample::kSasa, "sasa"}, std::pair{Downsample::kHalo, "halo"},
        std::pair{Downsample::kConv, "conv"}, std::pair{Downsample::kDepthwise, "depthwise"},
        std::pair{Downsample::kConvPoolBlock, "conv_pool_block"}}) {
    add(fmt::format("down-sampling {}", name), [&, w = way](QnAViTConfig& c) { c.downsample = w; });
  }
  add("average-pool skip",
      [](QnAViTConfig& c) { c.downsample_skip = DownsampleSkip::kAveragePool; });
  add("patches of 3", [](QnAViTConfig& c) { c.patch_size = 3; });
  add("patches of 1", [](QnAViTConfig& c) { c.patch_size = 1; });
  add("global attention", [](QnAViTConfig& c) {
    for (StageConfig& stage : c.stages) stage.window = {0, 0};
  });
  add("layer scale, rectangular windows", [](QnAViTConfig& c) {
    c.layer_scale = 0.4;
    for (StageConfig& stage : c.stages) {
      stage.kernel_size = {3, 5};
      stage.window = {2, 5};
    }
  });
  add("even windows", [](QnAViTConfig& c) {
    for (StageConfig& stage : c.stages) stage.kernel_size = {4, 2};
  });
  add("no head", [](QnAViTConfig& c) { c.classes = 0; });
  add("one stage", [](QnAViTConfig& c) { c.stages.resize(1); });
  return list;
}

TEST(QnAViT, AnySize) {
  torch::NoGradGuard no_grad;
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.what);
    QnAViT model = make(variant.config);
    const size_t stages = variant.config.stages.size();
    for (const auto& [height, width] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 30}, {33, 17}, {2, 5}}) {
      SCOPED_TRACE(::testing::Message() << height << " x " << width);
      const Tensor x = torch::randn({2, height, width, 3});
      const Pyramid pyramid = model->forward_pyramid(x);
      ASSERT_EQ(pyramid.maps.size(), stages);
      for (size_t i = 0; i < stages; ++i) {
        const int64_t stride = variant.config.stride(i);
        EXPECT_EQ(pyramid.maps[i].sizes(),
                  at::IntArrayRef(
                      {2, up(height, stride), up(width, stride), variant.config.features(i)}));
        EXPECT_FALSE(pyramid.masks[i].defined());
      }
      const Tensor features = model->forward_features(x);
      EXPECT_TRUE(torch::equal(features, pyramid.maps.back()));
      const Tensor y = model->forward(x);
      EXPECT_TRUE(torch::equal(y, model->forward_head(features)));
      const int64_t classes = variant.config.classes;
      EXPECT_EQ(y.sizes(),
                at::IntArrayRef({2, classes > 0 ? classes : variant.config.features(stages - 1)}));
      EXPECT_TRUE(y.isfinite().all().item<bool>());
    }
  }
}

// Windows are shifted in every second local block.
TEST(QnAViT, ShiftedWindows) {
  QnAViTConfig config = tiny();
  config.local_mixer = LocalMixer::kWindow;
  config.stages[1].qna_blocks = 3;
  config.stages[1].window = {4, 7};
  const QnAViT model(config);
  using Shift = std::array<int64_t, 2>;
  const Shift expected[] = {{0, 0}, {0, 0}, {2, 3}, {0, 0}};  // after one block of self-attention
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(model->stages[1]->blocks[i]->attention->options().shift, expected[i]) << i;
  }
}

TEST(QnAViT, LargeAndLongImages) {
  torch::NoGradGuard no_grad;
  QnAViT model = make(tiny());
  for (const auto& [height, width] :
       std::vector<std::pair<int64_t, int64_t>>{{224, 224}, {7, 300}, {300, 7}}) {
    const Tensor map = model->forward_features(torch::randn({1, height, width, 3}));
    EXPECT_EQ(map.sizes(), at::IntArrayRef({1, up(height, 16), up(width, 16), 32}));
    EXPECT_TRUE(map.isfinite().all().item<bool>());
  }
}

// Products of up to 576 terms in a chain of some twenty: 1e-4 of the largest.
TEST(QnAViT, WithAndWithoutGradients) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.what);
    QnAViT model = make(variant.config);
    const Tensor x = torch::randn({2, 33, 30, 3});
    const Tensor y = model->forward(x);
    EXPECT_TRUE(y.requires_grad());
    torch::NoGradGuard no_grad;
    EXPECT_TRUE(near(model->forward(x), y, 1e-4));
    model->to(torch::kDouble);
    const Tensor exact = model->forward(x.to(torch::kDouble));
    EXPECT_EQ(exact.scalar_type(), torch::kDouble);
    EXPECT_TRUE(near(y, exact, 1e-4));
  }
}

TEST(QnAViT, ImagesOfABatchAreIndependent) {
  torch::NoGradGuard no_grad;
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.what);
    QnAViT model = make(variant.config);
    const Tensor x = torch::randn({3, 33, 30, 3});
    const Tensor features = model->forward_features(x);
    const Tensor y = model->forward(x);
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor alone = x.slice(0, i, i + 1);
      // Some of the products are LibTorch's, whose rounding depends on the number of rows.
      EXPECT_TRUE(near(model->forward_features(alone), features.slice(0, i, i + 1), 2e-5)) << i;
      EXPECT_TRUE(near(model->forward(alone), y.slice(0, i, i + 1), 2e-5)) << i;
    }
  }
}

// An image in the corner of a larger canvas, with NaN around it, is the image alone.
TEST(QnAViT, MaskedCanvas) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::array<int64_t, 2> sizes[] = {{21, 30}, {32, 17}, {1, 1}, {40, 50}};
  for (const Variant& variant : variants()) {
    QnAViT model = make(variant.config);
    const Tensor canvas = torch::full({4, 40, 50, 3}, nan);
    Tensor mask = torch::zeros({4, 40, 50}, torch::kBool);
    std::vector<Tensor> images;
    for (int64_t i = 0; i < 4; ++i) {
      images.push_back(torch::randn({1, sizes[i][0], sizes[i][1], 3}));
      canvas[i].slice(0, 0, sizes[i][0]).slice(1, 0, sizes[i][1]).copy_(images[i][0]);
      mask[i].slice(0, 0, sizes[i][0]).slice(1, 0, sizes[i][1]).fill_(true);
    }
    for (const bool gradients : {false, true}) {
      torch::AutoGradMode mode(gradients);
      const Tensor y = model->forward(canvas, mask);
      const Pyramid pyramid = model->forward_pyramid(canvas, mask);
      for (int64_t i = 0; i < 4; ++i) {
        SCOPED_TRACE(::testing::Message()
                     << variant.what << ", image " << i << (gradients ? ", with gradients" : ""));
        // float32, through LibTorch's products of another number of rows.
        EXPECT_TRUE(near(y.slice(0, i, i + 1), model->forward(images[i]), 5e-5));
        const Pyramid alone = model->forward_pyramid(images[i]);
        for (size_t s = 0; s < pyramid.maps.size(); ++s) {
          const Tensor& expected = alone.maps[s];
          const auto part = [&](const Tensor& map) {
            return map.slice(0, i, i + 1)
                .slice(1, 0, expected.size(1))
                .slice(2, 0, expected.size(2));
          };
          EXPECT_TRUE(near(part(pyramid.maps[s]), expected, 5e-5)) << "stage " << s;
          // The masks say where that is.
          EXPECT_TRUE(part(pyramid.masks[s]).all().item<bool>());
          EXPECT_EQ(pyramid.masks[s][i].sum().item<int64_t>(), expected.size(1) * expected.size(2));
        }
      }
    }
  }
}

TEST(QnAViT, MaskedCanvasHasFiniteGradients) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.what);
    QnAViT model = make(variant.config);
    Tensor mask = torch::zeros({3, 33, 30}, torch::kBool);
    mask[0].slice(0, 0, 20).slice(1, 0, 9).fill_(true);
    mask[1].fill_(true);  // and nothing at all in the third
    const Tensor x =
        torch::randn({3, 33, 30, 3}).masked_fill(~mask.unsqueeze(-1), nan).requires_grad_();
    const Tensor y = model->forward(x, mask);
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    y.square().sum().backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
    EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
    EXPECT_EQ(x.grad().masked_fill(mask.unsqueeze(-1), 0).abs().max().item<double>(), 0);
  }
}

TEST(QnAViT, CheckpointingGivesTheSameGradients) {
  for (const bool drop : {false, true}) {
    QnAViTConfig config = tiny();
    config.drop_path = drop ? 0.5 : 0;
    QnAViT model = make(config);
    model->train();
    const Tensor x = torch::randn({4, 20, 17, 3});
    const auto gradients = [&](bool checkpointing) {
      model->set_checkpointing(checkpointing);
      model->zero_grad(/*set_to_none=*/true);
      torch::manual_seed(62);
      model->forward(x).square().sum().backward();
      std::vector<Tensor> found;
      for (const Tensor& parameter : model->parameters()) found.push_back(parameter.grad());
      return found;
    };
    const auto plain = gradients(false);
    const auto again = gradients(true);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(plain[i].defined());
      EXPECT_TRUE(same(plain[i], again[i])) << i;
    }
  }
}

TEST(QnAViT, StochasticDepthInTrainingOnly) {
  QnAViTConfig config = tiny();
  config.drop_path = 0.5;
  QnAViT model = make(config);
  const Tensor x = torch::randn({4, 20, 17, 3});
  const auto run = [&](uint64_t seed) {
    torch::manual_seed(seed);
    return model->forward(x).detach();
  };
  EXPECT_TRUE(torch::equal(run(1), run(2)));
  model->train();
  EXPECT_TRUE(torch::equal(run(1), run(1)));
  EXPECT_FALSE(torch::equal(run(1), run(2)));
}

// From 0 at the first block to drop_path at the last, in equal steps; the down-sampling blocks
// count, or have none.
TEST(QnAViT, StochasticDepthGrows) {
  QnAViTConfig config = tiny();
  config.drop_path = 0.5;
  const auto rates = [&] {
    const QnAViT model(config);
    std::vector<double> list;
    for (const Stage& stage : model->stages) {
      for (const nn::Block& block : stage->blocks) list.push_back(block->options().drop_path);
      if (stage->downsample) list.push_back(stage->downsample->options().drop_path);
    }
    return list;
  };
  const auto expect_rates = [&](const std::vector<double>& expected) {
    const std::vector<double> got = rates();
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
  };
  // Blocks: 1, down, 2, down, 1.
  expect_rates({0, 0.1, 0.2, 0.3, 0.4, 0.5});
  config.drop_path_downsample = false;
  expect_rates({0, 0, 0.5 / 3, 1.0 / 3, 0, 0.5});
}

TEST(QnAViT, BaseAt384) {
  // Base's shape, an eighth as wide.
  QnAViTConfig config = find_model("qna_vit_base_384").config;
  config.base_dim /= 8;
  for (StageConfig& stage : config.stages) {
    stage.attention_heads = std::max<int64_t>(1, stage.attention_heads / 3);
    stage.attention_blocks = std::min<int64_t>(stage.attention_blocks, 2);
    stage.qna_blocks = std::min<int64_t>(stage.qna_blocks, 1);
  }
  QnAViT model = make(config);
  torch::NoGradGuard no_grad;
  const Tensor x = torch::randn({1, 384, 384, 3});
  EXPECT_EQ(model->forward_features(x).sizes(), at::IntArrayRef({1, 12, 12, 96}));
  EXPECT_TRUE(model->forward(x).isfinite().all().item<bool>());
}

TEST(QnAViT, BFloat16) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.what);
    QnAViT model = make(variant.config);
    const Tensor x = torch::randn({2, 33, 30, 3});
    {
      const ops::testing::Autocast lower(torch::kBFloat16);
      const Tensor y = model->forward(x);
      EXPECT_TRUE(y.isfinite().all().item<bool>());
      y.to(torch::kFloat).sum().backward();
      for (const auto& item : model->named_parameters()) {
        EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
      }
    }
    model->to(torch::kBFloat16);
    torch::NoGradGuard no_grad;
    const Tensor y = model->forward(x.to(torch::kBFloat16));
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    // With a mask too, whose fillings must be numbers of this type.
    const Tensor mask = torch::ones({2, 33, 30}, torch::kBool);
    mask.slice(1, 20).fill_(false);
    EXPECT_TRUE(model->forward(x.to(torch::kBFloat16), mask).isfinite().all().item<bool>());
  }
}

TEST(QnAViT, FollowsAnOptimizer) {
  QnAViT model = make(tiny());
  const Tensor x = torch::randn({2, 20, 17, 3});
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05));
  const auto without_gradients = [&] {
    torch::NoGradGuard no_grad;
    return model->forward(x);
  };
  for (int step = 0; step < 2; ++step) {
    const Tensor before = without_gradients();
    model->zero_grad();
    model->forward(x).square().sum().backward();
    sgd.step();
    EXPECT_FALSE(near(without_gradients(), before, 1e-2));
    EXPECT_TRUE(near(without_gradients(), model->forward(x), 1e-4));
  }
}

TEST(QnAViT, WithoutHead) {
  QnAViTConfig config = tiny();
  config.classes = 0;
  QnAViT model = make(config);
  EXPECT_TRUE(model->head.is_empty());
  const Tensor x = torch::randn({2, 20, 17, 3});
  EXPECT_TRUE(
      near(model->forward(x), model->forward_features(x).mean(at::IntArrayRef{1, 2}), 1e-6));
}

TEST(QnAViT, Clone) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.what);
    QnAViT model = make(variant.config);
    const auto copy = std::dynamic_pointer_cast<QnAViTImpl>(model->clone());
    ASSERT_NE(copy, nullptr);
    torch::NoGradGuard no_grad;
    const int64_t stride = variant.config.stem_stride();  // more than one position in all stages
    const Tensor x = torch::randn({1, 5 * stride, 4 * stride + 1, 3});
    const Tensor y = model->forward(x);
    EXPECT_FALSE(copy->is_training());
    EXPECT_TRUE(torch::equal(copy->forward(x), y));
    // What the copy computes with is what it lists as its parameters, and its own.
    const auto parameters = copy->parameters();
    for (size_t i = 0; i < parameters.size(); i += 7) {
      Tensor parameter = parameters[i];
      const Tensor before = parameter.clone();
      parameter.add_(1 + torch::rand_like(parameter));
      EXPECT_FALSE(torch::equal(copy->forward(x), y));
      parameter.copy_(before);
    }
    EXPECT_TRUE(torch::equal(copy->forward(x), y));
    EXPECT_TRUE(torch::equal(model->forward(x), y));
  }
}

// In training the running statistics of the ResNet stem move, in evaluation they do not.
TEST(QnAViT, ResNetStemStatistics) {
  QnAViTConfig config = tiny();
  config.stem = StemKind::kResNet;
  QnAViT model = make(config);
  const Tensor x = torch::randn({2, 20, 17, 3});
  const Tensor before = model->stem->norm->running_mean.clone();
  model->forward(x);
  EXPECT_TRUE(torch::equal(model->stem->norm->running_mean, before));
  model->train();
  model->forward(x);
  EXPECT_FALSE(torch::equal(model->stem->norm->running_mean, before));
}

TEST(ResizeWindowTable, SameSizeAndBicubic) {
  torch::manual_seed(63);
  const Tensor table = torch::randn({3, 4, 2, 5}, torch::kDouble);
  EXPECT_TRUE(resize_window_table(table, {3, 4}).is_same(table));
  const Tensor resized = resize_window_table(table, {6, 2});
  ASSERT_EQ(resized.sizes(), at::IntArrayRef({6, 2, 2, 5}));
  namespace F = torch::nn::functional;
  for (int64_t query = 0; query < 2; ++query) {
    for (int64_t head = 0; head < 5; ++head) {
      const Tensor plane = F::interpolate(table.select(2, query).select(2, head).view({1, 1, 3, 4}),
                                          F::InterpolateFuncOptions()
                                              .size(std::vector<int64_t>{6, 2})
                                              .mode(torch::kBicubic)
                                              .align_corners(false));
      EXPECT_TRUE(near(resized.select(2, query).select(2, head), plane[0][0], 1e-14));
    }
  }
}

TEST(QnAViT, WrongInputs) {
  QnAViT model = make(tiny());
  expect_complaint([&] { model->forward(torch::randn({1, 8, 8, 4})); }, {"images", "[1, 8, 8, 4]"});
  expect_complaint([&] { model->forward(torch::randn({8, 8, 3})); }, {"images", "[8, 8, 3]"});
  expect_complaint([&] { model->forward({}); }, {"images", "undefined"});
  expect_complaint([&] { model->forward(torch::randn({1, 0, 8, 3})); }, {"empty", "[1, 0, 8, 3]"});
  expect_complaint([&] { model->forward(torch::ones({1, 8, 8, 3}, torch::kByte)); }, {"floating"});
  expect_complaint(
      [&] {
        model->forward(torch::randn({1, 8, 8, 3}), torch::ones({1, 8, 7}, torch::kBool));
      },
      {"mask", "[1, 8, 8]", "[1, 8, 7]"});
  expect_complaint(
      [&] {
        model->forward(torch::randn({1, 8, 8, 3}), torch::ones({1, 8, 8}));
      },
      {"mask", "bool"});
  expect_complaint([] { QnAViT(QnAViTConfig{}); }, {"stages", "got 0"});
}

}  // namespace
}  // namespace qna::models
