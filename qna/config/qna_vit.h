// What a QnA-ViT is made of, as a plain struct with a JSON and a TOML form.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "qna/config/layers.h"

namespace qna::config {

// From pixels to the first map: patches through one product; a 7 x 7 convolution with stride 2,
// BatchNorm and activation, for small images; the same with max-pooling behind it; the first stages
// of EfficientNet-Lite0 (efficientnet_stem.h), whose weights have seen ImageNet.
enum class StemKind { kPatch, kConv, kResNet, kEfficientNet };
// Between stages.
enum class Downsample {
  kQnA,           // a block whose QnA layer has stride 2
  kPatchMerging,  // Swin's: 2 x 2 neighbours through one product
  kConvPool,      // NesT's: 3 x 3 convolution, LayerNorm and max-pooling
  kSasa,          // blocks whose layer has stride 2, as with QnA
  kHalo,
  kConv,
  kDepthwise,
  kConvPoolBlock,  // NesT's in the place of that layer, with a skip connection and an MLP around
};
// What stands beside the layer with stride as its skip connection.
enum class DownsampleSkip { kConv, kAveragePool };
// Mean over the positions, a QnA layer over the whole map, or the sum of both.
enum class HeadKind { kGap, kQnAv1, kQnAv2 };
// What mixes neighbours in the local blocks: QnA, a query per pixel in overlapping windows (SASA),
// windows that are shifted in every second block (Swin), blocks with a halo (HaloNet), convolution.
enum class LocalMixer { kQnA, kSasa, kWindow, kHalo, kConv, kDepthwise };

// Self-attention blocks come first in a stage, then local blocks, then (but for the last stage) the
// down-sampling, which doubles features and QnA heads. What is said of QnA goes for the mixer in
// its place; kWindow takes heads and window of self-attention.
struct StageConfig {
  int64_t attention_blocks = 0;
  int64_t qna_blocks = 0;  // the local ones, without the one that down-samples
  int64_t attention_heads = 2;
  int64_t qna_heads = 8;
  std::array<int64_t, 2> kernel_size = {3, 3};  // the receptive field, height and width
  int64_t queries = 2;
  std::array<int64_t, 2> window = {7, 7};  // of self-attention; 0: the whole map

  bool operator==(const StageConfig&) const = default;
};

struct QnAViTConfig {
  std::array<int64_t, 2> image_size = {224, 224};  // trained at; any other runs too
  int64_t in_channels = 3;
  int64_t classes = 1000;  // 0: no head
  int64_t base_dim = 64;   // features of the first stage, doubled by each down-sampling
  StemKind stem = StemKind::kPatch;
  int64_t patch_size = 4;  // of the patch stem
  std::vector<StageConfig> stages = {};
  LocalMixer local_mixer = LocalMixer::kQnA;
  Downsample downsample = Downsample::kQnA;
  DownsampleSkip downsample_skip = DownsampleSkip::kConv;
  double mlp_ratio = 4;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  AttentionScale attention_scale = AttentionScale::kPerTap;
  bool normalize_queries = true;
  bool normalize_stop_gradient = false;
  double layer_scale = 0;  // initial value of the learned scale behind each branch; 0: none
  double drop_path = 0;    // of the last block; grows linearly from 0 at the first
  bool drop_path_downsample = true;
  HeadKind head = HeadKind::kGap;

  // Features of stage i, and how many pixels one position of its map stands for.
  int64_t features(size_t stage) const { return base_dim << stage; }
  int64_t stem_stride() const;
  int64_t stride(size_t stage) const { return stem_stride() << stage; }

  bool operator==(const QnAViTConfig&) const = default;
};

// Throws qna::Error that names the field, the rule and the value.
void check(const QnAViTConfig& config);

// The keys are the fields' names; what is left out has its default. Unknown keys, wrong types and
// values that do not fit together throw qna::Error. Two numbers that are the same may be written as
// one: "window": 7.
nlohmann::json to_json(const QnAViTConfig& config);
QnAViTConfig config_from_json(const nlohmann::json& json);

}  // namespace qna::config
