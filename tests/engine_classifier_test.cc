// QnA-ViT by the engine against the torch modules in float64.
#include <gtest/gtest.h>

#include "qna/checkpoint/model_file.h"
#include "qna/config/ablations.h"
#include "qna/config/registry.h"
#include "tests/engine_and_torch.h"
#include "tests/support/random_config.h"

namespace qna::testing {
namespace {

using models::Pyramid;
using models::QnAViT;

const auto* const kClassifierOnOneThread =
    ::testing::AddGlobalTestEnvironment(new ops::testing::OneThread);

// Sums whose terms are about 1 and nearly cancel are no better than these.
constexpr double kLeast = 0.1;

// All that a classifier shows.
struct SeenClassifier : engine::Visitor {
  std::map<int64_t, std::vector<Tensor>> stages;
  std::vector<Tensor> pooled_features;

  bool wants_stage(int64_t) override { return true; }
  void stage(int64_t index, const engine::MapView& map) override {
    stages[index].push_back(tensor_of(map));
  }
  bool wants_pooled() override { return true; }
  void pooled(const engine::MapView& map) override {
    pooled_features.push_back(tensor_of(map).flatten(1));
  }
};

Tensor logits_of(const engine::Model& model, const Tensor& x, const Tensor& mask,
                 engine::Context& context, engine::Visitor* visitor = nullptr) {
  Tensor logits = torch::full({x.size(0), model.classes()}, std::nan(""));
  model.classify(images_of(x, mask), logits.numel() > 0 ? logits.data_ptr<float>() : nullptr,
                 context, visitor);
  return logits;
}

// What the torch modules make of images.
struct TorchClassifier {
  TorchClassifier(QnAViT& model, const Tensor& x, const Tensor& mask)
      : pyramid(model->forward_pyramid(x, mask)) {
    const Tensor &map = pyramid.maps.back(), &map_mask = pyramid.masks.back();
    pooled = model->head ? model->head->pool(map, map_mask) : model->forward_head(map, map_mask);
    if (model->head) logits = model->head->fc->forward(pooled);
  }
  Pyramid pyramid;
  Tensor pooled, logits;
};

void expect_as_torch(QnAViT& model, const Tensor& x, const Tensor& mask) {
  const torch::NoGradGuard no_grad;
  const engine::Model served = checkpoint::serving_model(model, info_for(x.size(3)));
  QnAViT double_model = exact_copy(model);
  const TorchClassifier exact(double_model, x.to(torch::kDouble), mask), rough(model, x, mask);
  SeenClassifier seen;
  engine::Context context(2);
  const Tensor logits = logits_of(served, x, mask, context, &seen);
  ASSERT_EQ(seen.stages.size(), exact.pyramid.maps.size());
  for (size_t i = 0; i < seen.stages.size(); ++i) {
    expect_maps(seen.stages[i], exact.pyramid.maps[i], rough.pyramid.maps[i],
                exact.pyramid.masks[i], fmt::format("stage {}", i));
  }
  EXPECT_TRUE(as_exact(torch::cat(seen.pooled_features), exact.pooled, rough.pooled, kLeast));
  if (model->head) {
    EXPECT_TRUE(as_exact(logits, exact.logits, rough.logits, kLeast));
  }

  // Nobody looks, another number of threads, each image alone: the same bits.
  engine::Context alone(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    EXPECT_TRUE(torch::equal(logits_of(served, image_alone(x, i), image_alone(mask, i), alone),
                             logits.slice(0, i, i + 1)))
        << "image " << i << " alone";
  }
}

void expect_as_torch(const config::QnAViTConfig& config, at::IntArrayRef sizes, MaskKind kind,
                     uint64_t seed) {
  QnAViT model = random_model<QnAViT>(config, seed);
  const Tensor mask = random_mask(kind, sizes[0], sizes[1], sizes[2]);
  expect_as_torch(model, random_images(mask, sizes), mask);
}

TEST(EngineClassifier, EveryModelOfTheList) {
  for (const config::ModelEntry& entry : config::models()) {
    SCOPED_TRACE(entry.name);
    expect_as_torch(entry.config, {1, 64, 50, entry.config.in_channels}, MaskKind::kNone, 1);
  }
}

TEST(EngineClassifier, TinyAtItsSize) {
  const config::QnAViTConfig& config = config::find_model("qna_vit_tiny").config;
  expect_as_torch(config, {1, 224, 224, 3}, MaskKind::kNone, 2);
  expect_as_torch(config, {2, 224, 224, 3}, MaskKind::kRectangles, 2);
}

// A query and a key for everything that the options allow.
TEST(EngineClassifier, RandomNetworks) {
  RandomConfig random(17);
  for (int n = 0; n < 400; ++n) {
    const config::QnAViTConfig config = random.qna_vit();
    const std::vector<int64_t> sizes = {random.pick(1, 3), random.pick(1, 60), random.pick(1, 60),
                                        config.in_channels};
    const MaskKind kind = random.one_of(MaskKind::kHoles);
    SCOPED_TRACE(fmt::format("number {}: {} images of {} x {}, mask {}\n{}", n, sizes[0], sizes[1],
                             sizes[2], static_cast<int>(kind), config::to_toml(config)));
    expect_as_torch(config, sizes, kind, n);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Shifted windows, global attention and the head over the map, whose tables change their size.
TEST(EngineClassifier, OtherSizesThanTrained) {
  config::QnAViTConfig config{
      .image_size = {32, 48},
      .classes = 4,
      .base_dim = 8,
      .stages = {{.attention_blocks = 1, .qna_blocks = 2, .qna_heads = 2, .window = {3, 4}},
                 {.attention_blocks = 1, .qna_heads = 4, .window = {0, 0}}},
      .local_mixer = config::LocalMixer::kWindow,
      .head = config::HeadKind::kQnAv2};
  for (const auto& [height, width] : {std::pair{32, 48}, {33, 47}, {16, 100}, {5, 3}, {1, 1}}) {
    for (const MaskKind kind : {MaskKind::kNone, MaskKind::kRectangles, MaskKind::kHoles}) {
      SCOPED_TRACE(fmt::format("{} x {}, mask {}", height, width, static_cast<int>(kind)));
      expect_as_torch(config, {3, height, width, 3}, kind, 3);
    }
  }
}

// Nothing to see in one image of a batch.
TEST(EngineClassifier, AnImageThatIsNotThere) {
  for (const auto head :
       {config::HeadKind::kGap, config::HeadKind::kQnAv1, config::HeadKind::kQnAv2}) {
    QnAViT model = random_model<QnAViT>(
        config::QnAViTConfig{.image_size = {16, 16},
                             .classes = 3,
                             .base_dim = 8,
                             .stages = {{.attention_blocks = 1, .qna_blocks = 1, .qna_heads = 2},
                                        {.qna_blocks = 1, .qna_heads = 2}},
                             .head = head},
        4);
    Tensor mask = torch::ones({2, 17, 12}, torch::kBool);
    mask[1].fill_(false);
    expect_as_torch(model, random_images(mask, {2, 17, 12, 3}), mask);
  }
}

TEST(EngineClassifier, NothingButTheFirstStages) {
  QnAViT model = random_model<QnAViT>(config::find_model("qna_vit_pico").config, 5);
  const engine::Model served = checkpoint::serving_model(model, info_for(3));
  struct First : SeenClassifier {
    bool wants_stage(int64_t index) override { return index == 1; }
    bool wants_pooled() override { return false; }
    bool done() override { return !stages.empty(); }
  } first;
  const Tensor x = torch::randn({1, 32, 32, 3});
  engine::Context context(1);
  Tensor logits = torch::full({1, served.classes()}, 7.0);
  served.classify(images_of(x), logits.data_ptr<float>(), context, &first);
  EXPECT_TRUE((logits == 7).all().item<bool>());  // left as they were
  ASSERT_EQ(first.stages[1].size(), 1);
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(near(first.stages[1][0], model->forward_pyramid(x).maps[1], kTolerance));
}

}  // namespace
}  // namespace qna::testing
