#include "qna/config/parameters.h"

#include <fmt/format.h>

#include "qna/config/blocks.h"
#include "qna/config/efficientnet_stem.h"

namespace qna::config {
namespace {

using Shape = std::vector<int64_t>;

// Adds the tensors of a part under its name.
class List {
 public:
  List(Parameters& all, std::string prefix) : all_(all), prefix_(std::move(prefix)) {}

  List in(const std::string& part) const { return {all_, prefix_ + part + "."}; }
  List in(const std::string& part, size_t index) const {
    return in(fmt::format("{}.{}", part, index));
  }
  void add(const char* name, Shape shape, Parameter::Kind kind = Parameter::Kind::kLearned) const {
    all_.push_back({prefix_ + name, std::move(shape), kind});
  }
  // What LayerNorm, and InstanceNorm with it, learns.
  void norm(const std::string& part, int64_t features) const {
    in(part).add("weight", {features});
    in(part).add("bias", {features});
  }
  void linear(const std::string& part, int64_t from, int64_t to, bool bias = true) const {
    in(part).add("weight", {to, from});
    if (bias) in(part).add("bias", {to});
  }
  void convolution(const std::string& part, int64_t from, int64_t to, std::array<int64_t, 2> kernel,
                   bool bias = false) const {
    in(part).add("weight", {to, from, kernel[0], kernel[1]});
    if (bias) in(part).add("bias", {to});
  }

 private:
  Parameters& all_;
  std::string prefix_;
};

// ---- layers ----

void add(const List& list, const QnAOptions& options) {
  const QnAOptions o = complete(options);
  const Shape table = {o.kernel_size[0], o.kernel_size[1], o.queries, o.heads};
  list.add("query", {o.queries, o.features});
  list.add("key_weight", {o.in_features, o.features});
  if (o.bias) list.add("key_bias", {o.features});
  list.add("value_weight", {o.in_features, o.features});
  if (o.bias) list.add("value_bias", {o.features});
  list.add("out_weight", {o.features, o.out_features});
  if (o.bias) list.add("out_bias", {o.out_features});
  if (o.relative_bias) list.add("relative_bias", table);
  if (o.has_scale()) {
    list.add("attention_scale", o.has_scale_per_tap() ? table : Shape{o.queries, o.heads});
  }
}

void add_attention(const List& list, int64_t in, int64_t out, Shape bias) {
  list.linear("qkv", in, 3 * out, /*bias=*/false);
  list.linear("proj", out, out, /*bias=*/false);
  list.add("relative_bias", std::move(bias));
}

void add(const List& list, const WindowSelfAttentionOptions& o) {
  add_attention(list, o.features, o.features, {2 * o.window[0] - 1, 2 * o.window[1] - 1, o.heads});
}

void add(const List& list, const SasaOptions& options) {
  const SasaOptions o = complete(options);
  add_attention(list, o.in_features, o.out_features, {o.kernel_size[0], o.kernel_size[1], o.heads});
}

void add(const List& list, const HaloAttentionOptions& options) {
  const HaloAttentionOptions o = complete(options);
  add_attention(list, o.in_features, o.out_features, {o.offsets(0), o.offsets(1), o.heads});
}

void add(const List& list, const ConvolutionOptions& options) {
  const ConvolutionOptions o = complete(options);
  if (o.depthwise) {
    list.convolution("conv", 1, o.in_features, o.kernel_size);
    list.linear("proj", o.in_features, o.out_features, /*bias=*/false);
  } else {
    list.convolution("conv", o.in_features, o.out_features, o.kernel_size);
  }
}

void add(const List& list, const ConvPoolOptions& options) {
  const ConvPoolOptions o = complete(options);
  list.convolution("conv", o.in_features, o.out_features, {3, 3}, /*bias=*/true);
  list.norm("norm", o.out_features);
}

void add(const List& list, const BlockOptions& o) {
  const BlockShape shape = block_shape(o);
  list.norm("norm1", shape.in_features);
  if (o.qna) add(list.in("qna"), *o.qna);
  if (o.attention) add(list.in("attention"), *o.attention);
  if (o.mixer) std::visit([&](const auto& mixer) { add(list.in("mixer"), mixer); }, *o.mixer);
  if (shape.strided()) list.convolution("skip", shape.in_features, shape.features, {1, 1});
  list.norm("norm2", shape.features);
  list.linear("mlp.fc1", shape.features, shape.hidden);
  list.linear("mlp.fc2", shape.hidden, shape.features);
  if (o.layer_scale > 0) {
    list.add("scale1", {shape.features});
    list.add("scale2", {shape.features});
  }
}

// ---- networks ----

void add(const List& list, const InvertedResidualOptions& o) {
  if (o.expands()) list.linear("expand", o.in_features, o.hidden);
  list.convolution("depthwise", 1, o.hidden, {o.kernel, o.kernel}, /*bias=*/true);
  list.linear("project", o.hidden, o.features);
}

void add_efficientnet_stem(const List& list, const QnAViTConfig& c) {
  list.convolution("conv", c.in_channels, kEfficientNetFirst, {3, 3}, /*bias=*/true);
  const auto blocks = efficientnet_blocks();
  for (size_t i = 0; i < blocks.size(); ++i) add(list.in("blocks", i), blocks[i]);
  list.linear("out", kEfficientNetLast, c.base_dim);
}

void add_stem(const List& list, const QnAViTConfig& c) {
  if (c.stem == StemKind::kEfficientNet) return add_efficientnet_stem(list, c);
  const int64_t kernel = c.stem == StemKind::kPatch ? c.patch_size : 7;
  list.convolution("conv", c.in_channels, c.base_dim, {kernel, kernel});
  if (c.stem == StemKind::kPatch) return;
  list.norm("norm", c.base_dim);
  const List norm = list.in("norm");
  norm.add("running_mean", {c.base_dim}, Parameter::Kind::kStatistic);
  norm.add("running_var", {c.base_dim}, Parameter::Kind::kStatistic);
  norm.add("num_batches_tracked", {}, Parameter::Kind::kCount);
}

void add(const List& list, const QnAViTConfig& c) {
  add_stem(list.in("stem"), c);
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const List stage = list.in("stages", i);
    const int64_t features = c.features(i);
    for (int64_t n = 0; n < c.stages[i].attention_blocks + c.stages[i].qna_blocks; ++n) {
      const int64_t local = n - c.stages[i].attention_blocks;
      add(stage.in("blocks", n),
          local < 0 ? attention_block(c, i, 0) : local_block(c, i, local, 0));
    }
    if (i + 1 == c.stages.size()) break;
    if (c.downsample == Downsample::kPatchMerging) {
      stage.norm("downsample.norm", 4 * features);
      stage.linear("downsample.reduction", 4 * features, 2 * features, /*bias=*/false);
    } else if (c.downsample == Downsample::kConvPool) {
      add(stage.in("downsample"), ConvPoolOptions{.in_features = features});
    } else {
      add(stage.in("downsample"), downsampling_block(c, i, 0));
    }
  }
  if (c.classes == 0) return;
  const int64_t features = c.features(c.stages.size() - 1);
  list.norm("head.norm", features);
  if (c.head != HeadKind::kGap) add(list.in("head.qna"), head_qna(c));
  list.linear("head.fc", features, c.classes);
}

void add_frozen_norm(const List& list, int64_t features) {
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    list.add(name, {features}, Parameter::Kind::kStatistic);
  }
}

void add(const List& list, const ResNetBlockOptions& o) {
  const auto layer = [&](const char* conv, const char* norm, int64_t from, int64_t to,
                         int64_t kernel) {
    list.convolution(conv, from, to, {kernel, kernel});
    add_frozen_norm(list.in(norm), to);
  };
  if (o.basic) {
    layer("conv1", "bn1", o.in_features, o.features, 3);
    layer("conv2", "bn2", o.features, o.features, 3);
  } else {
    layer("conv1", "bn1", o.in_features, o.inner(), 1);
    layer("conv2", "bn2", o.inner(), o.inner(), 3);
    layer("conv3", "bn3", o.inner(), o.features, 1);
  }
  if (o.reshapes()) layer("downsample.0", "downsample.1", o.in_features, o.features, 1);
}

void add(const List& list, const ResNetConfig& c) {
  list.convolution("conv1", 3, 64, {7, 7});
  add_frozen_norm(list.in("bn1"), 64);
  for (int index = 0; index < 4; ++index) {
    const std::vector<ResNetBlockOptions> blocks = resnet_stage(c, index);
    for (size_t i = 0; i < blocks.size(); ++i) {
      add(list.in(fmt::format("layer{}", index + 1), i), blocks[i]);
    }
  }
  if (c.classes > 0) list.linear("fc", c.features(), c.classes);
}

void add_multihead(const List& list, int64_t features) {
  list.add("in_proj_weight", {3 * features, features});
  list.add("in_proj_bias", {3 * features});
  list.linear("out_proj", features, features);
}

void add_feedforward(const List& list, const TransformerOptions& o) {
  list.linear("linear1", o.features, o.feedforward);
  list.linear("linear2", o.feedforward, o.features);
}

void add(const List& list, const TransformerOptions& o) {
  const std::vector<bool> encoder = o.encoder_layers();
  for (size_t i = 0; i < encoder.size(); ++i) {
    const List layer = list.in("encoder.layers", i);
    if (encoder[i]) {
      add(layer, o.qna_block);
      continue;
    }
    add_multihead(layer.in("self_attn"), o.features);
    add_feedforward(layer, o);
    for (const char* norm : {"norm1", "norm2"}) layer.norm(norm, o.features);
  }
  if (o.has_encoder_norm()) list.norm("encoder.norm", o.features);
  for (int64_t i = 0; i < o.decoder_blocks; ++i) {
    const List layer = list.in("decoder.layers", i);
    add_multihead(layer.in("self_attn"), o.features);
    add_multihead(layer.in("multihead_attn"), o.features);
    add_feedforward(layer, o);
    for (const char* norm : {"norm1", "norm2", "norm3"}) layer.norm(norm, o.features);
  }
  list.norm("decoder.norm", o.features);
}

void add(const List& list, const DetrConfig& c) {
  add(list.in("transformer"), transformer_options(c));
  list.linear("class_embed", c.hidden, c.classes + 1);
  for (size_t i = 0; i < 3; ++i) {
    list.linear(fmt::format("bbox_embed.layers.{}", i), c.hidden, i < 2 ? c.hidden : 4);
  }
  if (c.anchors) {
    list.in("refpoint_embed").add("weight", {c.queries, 4});
  } else {
    list.in("query_embed").add("weight", {c.queries, c.hidden});
  }
  list.convolution("input_proj", c.backbone_features(), c.hidden, {1, 1}, /*bias=*/true);
  std::visit([&](const auto& body) { add(list.in("backbone.0.body"), body); }, c.backbone);
  if (c.has_qna_backbone()) list.norm("backbone.0.norm", c.backbone_features());
  if (c.positions == PositionKind::kLearned) {
    for (const char* name : {"backbone.1.row_embed", "backbone.1.col_embed"}) {
      list.in(name).add("weight", {kLearnedPlaces, c.hidden / 2});
    }
  }
}

void add(const List& list, const AutoEncoderConfig& c) {
  const std::array<int64_t, 2> kernel = {c.kernel_size, c.kernel_size};
  list.linear("stem", c.channels, c.widths.front());
  const size_t layers = c.widths.size() - 1;
  for (size_t i = 0; i < layers; ++i) {
    const List layer = list.in("encoder", i);
    const bool qna = c.encoder == EncoderLayer::kQnA;
    layer.norm("norm", c.widths[qna ? i : i + 1]);
    if (qna) {
      add(layer.in("qna"), encoder_qna(c, i));
    } else {
      layer.convolution("conv", c.widths[i], c.widths[i + 1], kernel);
    }
  }
  for (size_t n = 0; n < layers; ++n) {
    const List layer = list.in("decoder", n);
    const size_t i = layers - 1 - n;  // back to this width
    const bool qna = c.decoder == DecoderLayer::kQnA;
    layer.norm("norm", c.widths[qna ? i + 1 : i]);
    if (qna) {
      add(layer.in("qna"), decoder_qna(c, i));
    } else if (c.decoder == DecoderLayer::kBilinear) {
      layer.convolution("conv", c.widths[i + 1], c.widths[i], kernel);
    } else {  // transposed convolutions have their weights the other way round
      const int64_t size = TransposedWindow(c.factor).size;
      layer.convolution("conv", c.widths[i], c.widths[i + 1], {size, size});
    }
  }
  list.linear("head", c.widths.front(), c.channels);
}

template <typename Config>
Parameters list_of(const Config& config) {
  Parameters all;
  add(List(all, ""), config);
  return all;
}

}  // namespace

Parameters parameters(const QnAViTConfig& config) { return list_of(config); }
Parameters parameters(const ResNetConfig& config) { return list_of(config); }
Parameters parameters(const DetrConfig& config) { return list_of(config); }
Parameters parameters(const AutoEncoderConfig& config) { return list_of(config); }

int64_t learned_count(const Parameters& parameters) {
  int64_t count = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.kind != Parameter::Kind::kLearned) continue;
    int64_t numbers = 1;
    for (const int64_t size : parameter.shape) numbers *= size;
    count += numbers;
  }
  return count;
}

}  // namespace qna::config
