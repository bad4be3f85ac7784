#include "qna/config/blocks.h"

namespace qna::config {
namespace {

// What all blocks have in common.
BlockOptions plain_block(const QnAViTConfig& config, double drop_path) {
  return {.average_pool_skip = config.downsample_skip == DownsampleSkip::kAveragePool,
          .mlp_ratio = config.mlp_ratio,
          .activation = config.activation,
          .layer_scale = config.layer_scale,
          .drop_path = drop_path};
}

// The layer of a local block (stride 1), and of one that down-samples (stride 2).
QnAOptions qna_layer(const QnAViTConfig& config, size_t stage, int64_t stride) {
  const StageConfig& s = config.stages[stage];
  const int64_t features = config.features(stage);
  return {.in_features = features,
          .features = features * stride,
          .heads = s.qna_heads * stride,
          .queries = s.queries,
          .kernel_size = s.kernel_size,
          .stride = {stride, stride},
          .normalize_queries = config.normalize_queries,
          .normalize_stop_gradient = config.normalize_stop_gradient,
          .attention_scale = config.attention_scale};
}

MixerOptions mixer(const QnAViTConfig& config, size_t stage, LocalMixer kind, int64_t stride) {
  const StageConfig& s = config.stages[stage];
  const int64_t features = config.features(stage);
  switch (kind) {
    case LocalMixer::kSasa:
      return SasaOptions{.in_features = features,
                         .out_features = features * stride,
                         .heads = s.qna_heads * stride,
                         .kernel_size = s.kernel_size,
                         .stride = {stride, stride}};
    case LocalMixer::kHalo:
      return HaloAttentionOptions{.in_features = features,
                                  .out_features = features * stride,
                                  .heads = s.qna_heads * stride,
                                  .kernel_size = s.kernel_size,
                                  .stride = {stride, stride}};
    default:
      return ConvolutionOptions{.in_features = features,
                                .out_features = features * stride,
                                .kernel_size = s.kernel_size,
                                .stride = {stride, stride},
                                .depthwise = kind == LocalMixer::kDepthwise};
  }
}

}  // namespace

BlockOptions attention_block(const QnAViTConfig& config, size_t stage, double drop_path) {
  const StageConfig& s = config.stages[stage];
  const bool global = s.window[0] == 0;
  std::array<int64_t, 2> window = s.window;
  for (int axis = 0; global && axis < 2; ++axis) {  // the table is made for the trained size
    const int64_t stride = config.stride(stage);
    window[axis] = (config.image_size[axis] + stride - 1) / stride;
  }
  BlockOptions options = plain_block(config, drop_path);
  options.attention = WindowSelfAttentionOptions{.features = config.features(stage),
                                                 .heads = s.attention_heads,
                                                 .window = window,
                                                 .global = global};
  return options;
}

BlockOptions local_block(const QnAViTConfig& config, size_t stage, int64_t number,
                         double drop_path) {
  BlockOptions options = plain_block(config, drop_path);
  switch (config.local_mixer) {
    case LocalMixer::kQnA:
      options.qna = qna_layer(config, stage, 1);
      break;
    case LocalMixer::kWindow:
      options = attention_block(config, stage, drop_path);
      if (number % 2 == 1) {
        options.attention->shift = {options.attention->window[0] / 2,
                                    options.attention->window[1] / 2};
      }
      break;
    default:
      options.mixer = mixer(config, stage, config.local_mixer, 1);
  }
  return options;
}

BlockOptions downsampling_block(const QnAViTConfig& config, size_t stage, double drop_path) {
  BlockOptions options = plain_block(config, drop_path);
  switch (config.downsample) {
    case Downsample::kSasa:
      options.mixer = mixer(config, stage, LocalMixer::kSasa, 2);
      break;
    case Downsample::kHalo:
      options.mixer = mixer(config, stage, LocalMixer::kHalo, 2);
      break;
    case Downsample::kConv:
      options.mixer = mixer(config, stage, LocalMixer::kConv, 2);
      break;
    case Downsample::kDepthwise:
      options.mixer = mixer(config, stage, LocalMixer::kDepthwise, 2);
      break;
    case Downsample::kConvPoolBlock:
      options.mixer = ConvPoolOptions{.in_features = config.features(stage)};
      break;
    default:
      options.qna = qna_layer(config, stage, 2);
  }
  return options;
}

QnAOptions head_qna(const QnAViTConfig& config) {
  const size_t last = config.stages.size() - 1;
  const auto positions = [&](int64_t pixels) {
    return (pixels + config.stride(last) - 1) / config.stride(last);
  };
  return complete(
      QnAOptions{.in_features = config.features(last),
                 .heads = config.stages[last].qna_heads,
                 .kernel_size = {positions(config.image_size[0]), positions(config.image_size[1])},
                 .padding = std::array<int64_t, 4>{0, 0, 0, 0}});
}

}  // namespace qna::config
