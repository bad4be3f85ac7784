#include "qna/config/qna_vit.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/config/efficientnet_stem.h"
#include "qna/format/fields.h"

namespace qna::config {
namespace {

using nlohmann::json;

using format::EnumName;
using format::Fields;

constexpr const char* kQnAViTSubject = "model configuration";

constexpr EnumName<StemKind> kStems[] = {{StemKind::kPatch, "patch"},
                                         {StemKind::kConv, "conv"},
                                         {StemKind::kResNet, "resnet"},
                                         {StemKind::kEfficientNet, "efficientnet"}};
constexpr EnumName<Downsample> kDownsamples[] = {{Downsample::kQnA, "qna"},
                                                 {Downsample::kPatchMerging, "patch_merging"},
                                                 {Downsample::kConvPool, "conv_pool"},
                                                 {Downsample::kSasa, "sasa"},
                                                 {Downsample::kHalo, "halo"},
                                                 {Downsample::kConv, "conv"},
                                                 {Downsample::kDepthwise, "depthwise"},
                                                 {Downsample::kConvPoolBlock, "conv_pool_block"}};
constexpr EnumName<DownsampleSkip> kSkips[] = {{DownsampleSkip::kConv, "conv"},
                                               {DownsampleSkip::kAveragePool, "average_pool"}};
constexpr EnumName<HeadKind> kHeads[] = {
    {HeadKind::kGap, "gap"}, {HeadKind::kQnAv1, "qnav1"}, {HeadKind::kQnAv2, "qnav2"}};
constexpr EnumName<LocalMixer> kMixers[] = {
    {LocalMixer::kQnA, "qna"},       {LocalMixer::kSasa, "sasa"},
    {LocalMixer::kWindow, "window"}, {LocalMixer::kHalo, "halo"},
    {LocalMixer::kConv, "conv"},     {LocalMixer::kDepthwise, "depthwise"}};
constexpr EnumName<kernels::Activation> kActivations[] = {
    {kernels::Activation::kGeluTanh, "gelu_tanh"},
    {kernels::Activation::kGelu, "gelu"},
    {kernels::Activation::kRelu, "relu"},
    {kernels::Activation::kRelu6, "relu6"},
    {kernels::Activation::kSilu, "silu"}};
constexpr EnumName<AttentionScale> kScales[] = {
    {AttentionScale::kPerTap, "per_tap"}, {AttentionScale::kPerQuery, "per_query"},
    {AttentionScale::kOnes, "ones"},      {AttentionScale::kAverage, "average"},
    {AttentionScale::kSigned, "signed"},  {AttentionScale::kNone, "none"}};

// Every field of a struct is named once, here; see format/fields.h.
void visit_stage(auto& stage, const auto& visit) {
  visit("attention_blocks", stage.attention_blocks);
  visit("qna_blocks", stage.qna_blocks);
  visit("attention_heads", stage.attention_heads);
  visit("qna_heads", stage.qna_heads);
  visit("kernel_size", stage.kernel_size);
  visit("queries", stage.queries);
  visit("window", stage.window);
}

void visit_qna_vit(auto& c, const auto& visit) {
  visit("image_size", c.image_size);
  visit("in_channels", c.in_channels);
  visit("classes", c.classes);
  visit("base_dim", c.base_dim);
  visit.choose("stem", c.stem, kStems);
  visit("patch_size", c.patch_size);
  visit.choose("local_mixer", c.local_mixer, kMixers);
  visit.choose("downsample", c.downsample, kDownsamples);
  visit.choose("downsample_skip", c.downsample_skip, kSkips);
  visit("mlp_ratio", c.mlp_ratio);
  visit.choose("activation", c.activation, kActivations);
  visit.choose("attention_scale", c.attention_scale, kScales);
  visit("normalize_queries", c.normalize_queries);
  visit("normalize_stop_gradient", c.normalize_stop_gradient);
  visit("layer_scale", c.layer_scale);
  visit("drop_path", c.drop_path);
  visit("drop_path_downsample", c.drop_path_downsample);
  visit.choose("head", c.head, kHeads);
}

}  // namespace

int64_t QnAViTConfig::stem_stride() const {
  switch (stem) {
    case StemKind::kPatch:
      return patch_size;
    case StemKind::kConv:
      return 2;
    case StemKind::kResNet:
      return 4;
    case StemKind::kEfficientNet:
      return kEfficientNetStride;
  }
  return 1;
}

void check(const QnAViTConfig& c) {
  const auto in_range = [&](const std::string& name, int64_t value, int64_t least,
                            int64_t most = 1 << 16) {
    qna::check(value >= least && value <= most,
               "model configuration: {} must be from {} to {}, got {}", name, least, most, value);
  };
  const auto number = [](const char* name, double value, double least, double most) {
    qna::check(std::isfinite(value) && value >= least && value <= most,
               "model configuration: {} must be from {} to {}, got {}", name, least, most, value);
  };
  // Ranges larger than any sensible network; all of it together is bounded below.
  in_range("image_size (height)", c.image_size[0], 1);
  in_range("image_size (width)", c.image_size[1], 1);
  in_range("in_channels", c.in_channels, 1, 4096);
  in_range("classes", c.classes, 0, 1 << 24);
  in_range("base_dim", c.base_dim, 1);
  in_range("patch_size", c.patch_size, 1, 1024);
  qna::check(!c.stages.empty() && c.stages.size() <= 8,
             "model configuration: stages must be from 1 to 8, got {}", c.stages.size());
  number("mlp_ratio", c.mlp_ratio, 0.01, 64);
  number("layer_scale", c.layer_scale, 0, 1e6);
  number("drop_path", c.drop_path, 0, 0.999);
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const StageConfig& s = c.stages[i];
    const std::string stage = fmt::format("stages[{}].", i);
    const int64_t features = c.features(i);
    in_range(stage + "attention_blocks", s.attention_blocks, 0, 1000);
    in_range(stage + "qna_blocks", s.qna_blocks, 0, 1000);
    in_range(stage + "attention_heads", s.attention_heads, 1);
    in_range(stage + "qna_heads", s.qna_heads, 1);
    in_range(stage + "queries", s.queries, 1, 1024);
    for (int axis = 0; axis < 2; ++axis) {
      in_range(stage + "kernel_size", s.kernel_size[axis], 1, 1023);
      in_range(stage + "window", s.window[axis], 0, 4096);
    }
    qna::check((s.window[0] == 0) == (s.window[1] == 0),
               "model configuration: {}window must be 0 in both directions or in none, got {} x {}",
               stage, s.window[0], s.window[1]);
    const bool windows = c.local_mixer == LocalMixer::kWindow && s.qna_blocks > 0;
    qna::check(!windows || s.window[0] > 0,
               "model configuration: {}window must be above 0 for the local mixer 'window', got 0",
               stage);
    qna::check((s.attention_blocks == 0 && !windows) || features % s.attention_heads == 0,
               "model configuration: {}attention_heads must divide the stage's {} features, got {}",
               stage, features, s.attention_heads);
    qna::check(features % s.qna_heads == 0,
               "model configuration: {}qna_heads must divide the stage's {} features, got {}",
               stage, features, s.qna_heads);
    qna::check(c.attention_scale != AttentionScale::kSigned || s.queries * s.qna_heads % 2 == 0,
               "model configuration: {}queries x qna_heads must be even for the attention scale "
               "'signed', got {} x {}",
               stage, s.queries, s.qna_heads);
    qna::check(
        std::llround(c.mlp_ratio * static_cast<double>(features)) >= 1,
        "model configuration: mlp_ratio must leave at least 1 of the {} features of stages[{}]"
        ", got {}",
        features, i, c.mlp_ratio);
  }
  double parameters = 0;  // of the products, which are nearly all
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const double features = static_cast<double>(c.features(i));
    const double blocks =
        static_cast<double>(c.stages[i].attention_blocks + c.stages[i].qna_blocks + 4);
    parameters += blocks * (4 + 2 * c.mlp_ratio) * features * features;
  }
  qna::check(parameters <= 0x1p34,
             "model configuration: the network must have at most 2^34 parameters, got about {:.3g}",
             parameters);
}

json to_json(const QnAViTConfig& config) {
  json out;
  visit_qna_vit(config, format::FieldWriter(out));
  out["stages"] = json::array();
  for (const StageConfig& stage : config.stages) {
    json object;
    visit_stage(stage, format::FieldWriter(object));
    out["stages"].push_back(object);
  }
  return out;
}

QnAViTConfig config_from_json(const json& object) {
  QnAViTConfig config;
  const Fields fields(object, kQnAViTSubject);
  visit_qna_vit(config, fields);
  const json* stages = fields.find("stages");
  qna::check(stages != nullptr,
             "model configuration: stages must be a list of tables, got nothing");
  for (const Fields& stage : fields.tables("stages")) {
    visit_stage(config.stages.emplace_back(), stage);
    stage.refuse_unknown();
  }
  fields.refuse_unknown();
  check(config);
  return config;
}

}  // namespace qna::config
