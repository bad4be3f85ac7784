// Detectors by the engine against the torch modules in float64.
#include <gtest/gtest.h>

#include "qna/checkpoint/model_file.h"
#include "qna/config/detectors.h"
#include "tests/engine_and_torch.h"
#include "tests/support/random_config.h"

namespace qna::testing {
namespace {

using models::Detr;
using models::DetrFeatures;
using models::DetrOutput;

const auto* const kDetectorOnOneThread =
    ::testing::AddGlobalTestEnvironment(new ops::testing::OneThread);

// softmax(q k / sqrt(dim)) of the layer's cross-attention, the mean over the heads: [B, Q, N].
Tensor look(const nn::MultiheadAttention& layer, const Tensor& query, const Tensor& key,
            const Tensor& mask, int64_t heads) {
  const int64_t features = query.size(-1), dim = features / heads;
  const auto part = [&](const Tensor& x, int64_t index) {
    return torch::linear(x, layer->in_proj_weight.narrow(0, index * features, features),
                         layer->in_proj_bias.narrow(0, index * features, features))
        .view({x.size(0), x.size(1), heads, dim})
        .transpose(1, 2);
  };
  Tensor scores =
      part(query, 0).matmul(part(key, 1).transpose(-2, -1)) / std::sqrt(static_cast<double>(dim));
  if (mask.defined()) {
    scores = scores.masked_fill(~mask.view({mask.size(0), 1, 1, -1}),
                                -std::numeric_limits<double>::infinity());
  }
  return scores.softmax(-1).mean(1);
}

// Where the queries of the last decoder block look, step by step: [B, Q, N].
Tensor decoder_attention(Detr& model, const DetrFeatures& features) {
  const config::DetrConfig& c = model->config();
  nn::DecoderImpl& decoder = *model->transformer->decoder;
  nn::DecoderImpl::Memory memory{
      .queries = {},
      .values = features.map.flatten(1, 2),
      .keys = (features.map + features.positions).flatten(1, 2),
      .mask = features.mask.defined() ? features.mask.flatten(1, 2) : features.mask};
  Tensor anchors = c.anchors ? model->refpoint_embed->weight : Tensor();
  const auto next = [&] {
    memory.queries = c.anchors ? model->positions().at(anchors.narrow(-1, 0, 2).sigmoid())
                               : model->query_embed->weight;
  };
  next();
  Tensor x = torch::zeros({features.map.size(0), c.queries, c.hidden}, features.map.options());
  for (size_t i = 0; i + 1 < decoder.layers->size(); ++i) {
    x = decoder.layers->at<nn::DecoderLayerImpl>(i).forward(x, memory);
    if (!c.anchors) continue;
    anchors = model->bbox_embed->forward(decoder.norm->forward(x)) + anchors;
    next();
  }
  auto& last = decoder.layers->at<nn::DecoderLayerImpl>(decoder.layers->size() - 1);
  Tensor y = c.pre_norm ? last.norm1->forward(x) : x;
  const Tensor placed = y + memory.queries;
  y = x + last.self_attn->forward(placed, placed, y);
  y = c.pre_norm ? last.norm2->forward(y) : last.norm1->forward(y);
  return look(last.multihead_attn, y + memory.queries, memory.keys, memory.mask, c.heads);
}

struct SeenDetector : engine::Visitor {
  std::map<int64_t, std::vector<Tensor>> stages;
  std::vector<Tensor> maps;
  std::vector<Tensor> attention;  // [B, Q, h, w]

  bool wants_stage(int64_t) override { return true; }
  void stage(int64_t index, const engine::MapView& seen) override {
    stages[index].push_back(tensor_of(seen));
  }
  bool wants_encoded() override { return true; }
  void encoded(const engine::MapView& seen) override { maps.push_back(tensor_of(seen)); }
  bool wants_decoder_attention() override { return true; }
  void decoder_attention(const engine::MapView& seen, int64_t height, int64_t width) override {
    attention.push_back(tensor_of(seen).view({seen.batch, seen.height, height, width}));
  }
};

DetrOutput detect(const engine::Model& model, const Tensor& x, const Tensor& mask, int64_t blocks,
                  engine::Context& context, engine::Visitor* visitor = nullptr) {
  const config::DetrConfig& c = model.detector();
  DetrOutput out{torch::full({blocks, x.size(0), c.queries, c.classes + 1}, std::nan("")),
                 torch::full({blocks, x.size(0), c.queries, 4}, std::nan(""))};
  model.detect(images_of(x, mask),
               {.logits = out.logits.data_ptr<float>(),
                .boxes = out.boxes.data_ptr<float>(),
                .every_block = blocks > 1},
               context, visitor);
  return out;
}

// What the torch modules make of images.
struct TorchDetector {
  TorchDetector(Detr& model, const Tensor& x, const Tensor& mask)
      : features(model->forward_features(x, mask)),
        output(model->forward_head(features)),
        // As a map whose features are the queries.
        looks(decoder_attention(model, features)
                  .unflatten(2, features.map.sizes().slice(1, 2))
                  .permute({0, 2, 3, 1})) {
    if (model->config().has_qna_backbone()) {
      stages = model->backbone().qna_vit->forward_pyramid(x, mask);
    }
  }
  DetrFeatures features;
  DetrOutput output;
  Tensor looks;
  models::Pyramid stages;
};

void expect_as_torch(Detr& model, const Tensor& x, const Tensor& mask) {
  const torch::NoGradGuard no_grad;
  const engine::Model served = checkpoint::serving_model(model, info_for_detector());
  Detr double_model = exact_copy(model);
  const TorchDetector exact(double_model, x.to(torch::kDouble), mask), rough(model, x, mask);
  const Tensor& map_mask = exact.features.mask;
  SeenDetector seen;
  engine::Context context(2);
  const DetrOutput last = detect(served, x, mask, 1, context, &seen);
  EXPECT_TRUE(as_exact(last.logits[0], exact.output.logits[-1], rough.output.logits[-1]));
  EXPECT_TRUE(as_exact(last.boxes[0], exact.output.boxes[-1], rough.output.boxes[-1]));
  expect_maps(seen.maps, exact.features.map, rough.features.map, map_mask, "encoded");
  std::vector<Tensor> looks;
  for (const Tensor& weights : seen.attention) looks.push_back(weights.permute({0, 2, 3, 1}));
  expect_maps(looks, exact.looks, rough.looks, map_mask, "decoder attention");
  EXPECT_EQ(seen.stages.size(), exact.stages.maps.size());
  for (size_t i = 0; i < exact.stages.maps.size(); ++i) {
    expect_maps(seen.stages[i], exact.stages.maps[i], rough.stages.maps[i], exact.stages.masks[i],
                fmt::format("stage {}", i));
  }
  const int64_t blocks = model->config().decoder_blocks;
  if (model->config().aux_loss && blocks > 1) {
    const DetrOutput all = detect(served, x, mask, blocks, context);
    EXPECT_TRUE(as_exact(all.logits, exact.output.logits, rough.output.logits));
    EXPECT_TRUE(as_exact(all.boxes, exact.output.boxes, rough.output.boxes));
    EXPECT_TRUE(torch::equal(all.logits[-1], last.logits[0]));
    EXPECT_TRUE(torch::equal(all.boxes[-1], last.boxes[0]));
  }
  engine::Context alone(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    const DetrOutput one = detect(served, image_alone(x, i), image_alone(mask, i), 1, alone);
    EXPECT_TRUE(torch::equal(one.logits, last.logits.slice(1, i, i + 1))) << "image " << i;
    EXPECT_TRUE(torch::equal(one.boxes, last.boxes.slice(1, i, i + 1))) << "image " << i;
  }
}

void expect_as_torch(const config::DetrConfig& config, at::IntArrayRef sizes, MaskKind kind,
                     uint64_t seed) {
  Detr model = random_model<Detr>(config, seed);
  Tensor mask = random_mask(kind, sizes[0], sizes[1], sizes[2]);
  if (mask.defined()) mask.slice(1, 0, 1).slice(2, 0, 1).fill_(true);  // each image is there
  expect_as_torch(model, random_images(mask, sizes), mask);
}

TEST(EngineDetector, EveryDetectorOfTheList) {
  for (const config::DetectorEntry& entry : config::detectors()) {
    SCOPED_TRACE(entry.name);
    config::DetrConfig config = entry.config;
    config.queries = 20;  // fewer of what all blocks have alike
    config.encoder_blocks = std::min<int64_t>(config.encoder_blocks, 3);
    config.decoder_blocks = std::min<int64_t>(config.decoder_blocks, 2);
    expect_as_torch(config, {2, 96, 130, 3}, MaskKind::kRectangles, 1);
  }
}

TEST(EngineDetector, RandomDetectors) {
  RandomConfig random(18);
  for (int n = 0; n < 120; ++n) {
    const config::DetrConfig config = random.detr();
    const std::vector<int64_t> sizes = {random.pick(1, 3), random.pick(1, 90), random.pick(1, 90),
                                        3};
    const MaskKind kind = random.one_of(MaskKind::kHoles);
    SCOPED_TRACE(fmt::format("number {}: {} images of {} x {}, mask {}\n{}", n, sizes[0], sizes[1],
                             sizes[2], static_cast<int>(kind), config::to_toml(config)));
    expect_as_torch(config, sizes, kind, n);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(EngineDetector, AnImageMustBeThere) {
  Detr model = random_model<Detr>(config::DetrConfig{.backbone = config::ResNetConfig{.depth = 18},
                                                     .hidden = 16,
                                                     .heads = 2,
                                                     .encoder_blocks = 1,
                                                     .decoder_blocks = 1,
                                                     .feedforward = 8,
                                                     .queries = 2,
                                                     .classes = 2},
                                  2);
  const engine::Model served = checkpoint::serving_model(model, info_for_detector());
  const Tensor x = torch::randn({2, 40, 40, 3});
  Tensor mask = torch::ones({2, 40, 40}, torch::kBool);
  mask[1].fill_(false);
  engine::Context context(1);
  expect_complaint([&] { detect(served, x, mask, 1, context); }, {"top left", "mask"});
}

}  // namespace
}  // namespace qna::testing
