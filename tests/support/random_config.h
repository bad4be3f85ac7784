// Random networks, small ones of every kind, for tests that sweep over all options.
#pragma once

#include <random>

#include "qna/config/auto_encoder.h"
#include "qna/config/detr.h"

namespace qna::testing {

class RandomConfig {
 public:
  explicit RandomConfig(uint32_t seed) : random_(seed) {}

  int64_t pick(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool coin() { return pick(0, 1) == 1; }
  template <typename Enum>
  Enum one_of(Enum last) {
    return static_cast<Enum>(pick(0, static_cast<int64_t>(last)));
  }

  config::QnAViTConfig qna_vit() {
    using namespace config;
    QnAViTConfig config{
        .image_size = {pick(1, 70), pick(1, 70)},
        .in_channels = pick(1, 4),
        .classes = pick(0, 3) * 5,
        .base_dim = 4 * pick(1, 3),
        .stem = one_of(StemKind::kEfficientNet),
        .patch_size = pick(1, 5),
        .stages = {},
        .local_mixer = one_of(LocalMixer::kDepthwise),
        .downsample = one_of(Downsample::kConvPoolBlock),
        .downsample_skip = one_of(DownsampleSkip::kAveragePool),
        .mlp_ratio = 0.3 * static_cast<double>(pick(1, 12)),
        .activation = activation(),
        .attention_scale = one_of(AttentionScale::kNone),
        .normalize_queries = coin(),
        .normalize_stop_gradient = coin(),
        .layer_scale = coin() ? 0.1 : 0,
        .drop_path = coin() ? 0.3 : 0,
        .drop_path_downsample = coin(),
        .head = one_of(HeadKind::kQnAv2),
    };
    // Of many positions, some have four features so near each other that the norm behind the stem
    // multiplies the rounding of its folded BatchNorm by hundreds. Max-pooling leaves fewer, and
    // further apart.
    if (config.stem == StemKind::kConv) config.base_dim = std::max<int64_t>(config.base_dim, 8);
    const bool is_signed = config.attention_scale == AttentionScale::kSigned;
    for (int64_t i = pick(1, 4); i > 0; --i) {
      const bool global = pick(0, 3) == 0 && config.local_mixer != LocalMixer::kWindow;
      config.stages.push_back({.attention_blocks = pick(0, 2),
                               .qna_blocks = pick(0, 2),
                               .attention_heads = int64_t{1} << pick(0, 2),
                               .qna_heads = int64_t{1} << pick(0, 2),
                               .kernel_size = {pick(1, 5), pick(1, 5)},
                               .queries = is_signed ? 2 * pick(1, 2) : pick(1, 4),
                               .window = {global ? 0 : pick(1, 5), global ? 0 : pick(1, 5)}});
    }
    check(config);
    return config;
  }

  config::DetrConfig detr() {
    using namespace config;
    DetrConfig config{.backbone = {},
                      .hidden = 16 * pick(1, 2),
                      .heads = int64_t{1} << pick(0, 2),
                      .encoder_blocks = pick(0, 3),
                      .decoder_blocks = pick(1, 3),
                      .feedforward = pick(1, 50),
                      .queries = pick(1, 9),
                      .classes = pick(1, 7),
                      .pre_norm = coin(),
                      .positions = one_of(PositionKind::kLearned),
                      .aux_loss = coin()};
    if (pick(0, 3) == 0) {
      const bool deep = coin();
      config.backbone = ResNetConfig{.depth = deep ? 50 : 18, .dilation = deep && coin()};
    } else {
      QnAViTConfig backbone = qna_vit();
      backbone.in_channels = 3;
      backbone.classes = 0;
      config.backbone = backbone;
    }
    if (config.positions == PositionKind::kSine) {
      if (coin()) config.sines = {.waves = static_cast<double>(pick(1, 8)), .temperature = 20};
      config.anchors = coin();
    }
    if (coin()) {
      config.qna = {.blocks = pick(1, 3),
                    .replaces = pick(0, config.encoder_blocks),
                    .heads = int64_t{1} << pick(0, 2),
                    .queries = pick(1, 2),
                    .kernel_size = {pick(1, 4), pick(1, 4)},
                    .mlp_ratio = 0.5 * static_cast<double>(pick(1, 4))};
      config.qna.first = pick(0, config.encoder_blocks - config.qna.replaces);
    }
    check(config);
    return config;
  }

 private:
  kernels::Activation activation() {
    using kernels::Activation;
    const Activation all[] = {Activation::kGeluTanh, Activation::kGelu, Activation::kRelu,
                              Activation::kRelu6, Activation::kSilu};
    return all[pick(0, 4)];
  }

  std::mt19937 random_;
};

// Every pair of an encoder's and a decoder's layer.
inline std::vector<config::AutoEncoderConfig> all_auto_encoders(int64_t factor) {
  using namespace config;
  std::vector<AutoEncoderConfig> configs;
  for (const auto encoder :
       {EncoderLayer::kConvStride, EncoderLayer::kConvPool, EncoderLayer::kQnA}) {
    for (const auto decoder :
         {DecoderLayer::kBilinear, DecoderLayer::kTransposed, DecoderLayer::kQnA}) {
      configs.push_back({.encoder = encoder,
                         .decoder = decoder,
                         .channels = 3,
                         .widths = {8, 12, 20},
                         .factor = factor,
                         .heads = 4});
    }
  }
  return configs;
}

}  // namespace qna::testing
