#include "qna/config/layers.h"

#include <cmath>

#include "qna/base/error.h"

namespace qna::config {
namespace {

void check_heads(int64_t heads, int64_t features, const char* layer) {
  qna::check(heads >= 1 && features % heads == 0,
             "{}: heads must be at least 1 and divide features ({}), got {}", layer, features,
             heads);
}

void check_at_least_one(std::array<int64_t, 2> values, const char* name, const char* layer) {
  for (int axis = 0; axis < 2; ++axis) {
    qna::check(values[axis] >= 1, "{}: {} ({}) must be at least 1, got {}", layer, name,
               axis == 0 ? "height" : "width", values[axis]);
  }
}

// Fills in out_features, as most layers have it.
void complete_features(int64_t in, int64_t& out, int64_t otherwise, const char* rule,
                       const char* layer) {
  qna::check(in >= 1, "{}: in_features must be at least 1, got {}", layer, in);
  qna::check(out >= 0, "{}: out_features must be at least 1 (or 0: {}), got {}", layer, rule, out);
  if (out == 0) out = otherwise;
}

}  // namespace

bool QnAOptions::has_scale_per_tap() const {
  return attention_scale == AttentionScale::kPerTap || attention_scale == AttentionScale::kOnes;
}

bool QnAOptions::has_scale() const {
  return has_scale_per_tap() || attention_scale == AttentionScale::kPerQuery;
}

QnAOptions complete(QnAOptions o) {
  constexpr const char* kName = "QnA";
  qna::check(o.in_features >= 1, "{}: in_features must be at least 1, got {}", kName,
             o.in_features);
  qna::check(o.features >= 0, "{}: features must be at least 1 (or 0: as out_features), got {}",
             kName, o.features);
  qna::check(o.out_features >= 0, "{}: out_features must be at least 1 (or 0: as features), got {}",
             kName, o.out_features);
  if (o.out_features == 0) o.out_features = o.features == 0 ? o.in_features : o.features;
  if (o.features == 0) o.features = o.out_features;
  check_heads(o.heads, o.features, kName);
  qna::check(o.upsample >= 1 && o.upsample <= 64, "{}: upsample must be from 1 to 64, got {}",
             kName, o.upsample);
  if (o.upsample > 1) {
    const int64_t needed = o.upsample * o.upsample;
    // The default of 2 fits no up-sampling factor, so it stands for "not given".
    qna::check(o.queries == 0 || o.queries == needed || o.queries == QnAOptions{}.queries,
               "{}: up-sampling by {} needs {} queries, got {}", kName, o.upsample, needed,
               o.queries);
    o.queries = needed;
    o.attention_scale = AttentionScale::kNone;
  }
  qna::check(o.queries >= 1, "{}: queries must be at least 1, got {}", kName, o.queries);
  qna::check(o.attention_scale != AttentionScale::kSigned || o.queries * o.heads % 2 == 0,
             "{}: a signed attention scale needs an even number of queries x heads, got {} x {}",
             kName, o.queries, o.heads);
  check_at_least_one(o.kernel_size, "kernel_size", kName);
  check_at_least_one(o.stride, "stride", kName);
  check_at_least_one(o.dilation, "dilation", kName);
  if (!o.padding.has_value()) o.padding = same_padding(o.kernel_size, o.dilation);
  for (const int64_t padding : *o.padding) {
    qna::check(padding >= 0, "{}: padding must be at least 0, got {}", kName, padding);
  }
  return o;
}

SasaOptions complete(SasaOptions o) {
  constexpr const char* kName = "Sasa";
  complete_features(o.in_features, o.out_features, o.in_features, "as in_features", kName);
  check_heads(o.heads, o.out_features, kName);
  check_at_least_one(o.kernel_size, "kernel_size", kName);
  check_at_least_one(o.stride, "stride", kName);
  check_at_least_one(o.dilation, "dilation", kName);
  const auto half = same_padding(o.kernel_size, o.dilation);
  if (!o.padding.has_value()) o.padding = half;
  for (size_t side = 0; side < 4; ++side) {
    const int64_t padding = (*o.padding)[side];
    qna::check(padding >= 0 && padding <= half[side],
               "{}: padding must be from 0 to half the window ({}), got {}", kName, half[side],
               padding);
  }
  return o;
}

HaloAttentionOptions complete(HaloAttentionOptions o) {
  constexpr const char* kName = "HaloAttention";
  complete_features(o.in_features, o.out_features, o.in_features, "as in_features", kName);
  check_heads(o.heads, o.out_features, kName);
  check_at_least_one(o.kernel_size, "kernel_size", kName);
  check_at_least_one(o.block, "block", kName);
  check_at_least_one(o.stride, "stride", kName);
  qna::check(o.block[0] % o.stride[0] == 0 && o.block[1] % o.stride[1] == 0,
             "{}: stride must divide block ({} x {}), got {} x {}", kName, o.block[0], o.block[1],
             o.stride[0], o.stride[1]);
  return o;
}

ConvolutionOptions complete(ConvolutionOptions o) {
  constexpr const char* kName = "Convolution";
  complete_features(o.in_features, o.out_features, o.in_features, "as in_features", kName);
  check_at_least_one(o.kernel_size, "kernel_size", kName);
  check_at_least_one(o.stride, "stride", kName);
  return o;
}

ConvPoolOptions complete(ConvPoolOptions o) {
  complete_features(o.in_features, o.out_features, 2 * o.in_features, "twice in_features",
                    "ConvPool");
  return o;
}

WindowSelfAttentionOptions complete(WindowSelfAttentionOptions o) {
  constexpr const char* kName = "WindowSelfAttention";
  qna::check(o.features >= 1, "{}: features must be at least 1, got {}", kName, o.features);
  check_heads(o.heads, o.features, kName);
  qna::check(o.window[0] >= 1 && o.window[1] >= 1, "{}: window must be at least 1 x 1, got {} x {}",
             kName, o.window[0], o.window[1]);
  for (int axis = 0; axis < 2; ++axis) {
    qna::check(o.shift[axis] >= 0 && o.shift[axis] < o.window[axis],
               "{}: shift must be from 0 to below the window ({} x {}), got {} x {}", kName,
               o.window[0], o.window[1], o.shift[0], o.shift[1]);
    qna::check(!o.global || o.shift[axis] == 0,
               "{}: over the whole map there is no shift, got {} x {}", kName, o.shift[0],
               o.shift[1]);
  }
  return o;
}

TransformerOptions complete(TransformerOptions o) {
  constexpr const char* kName = "Transformer";
  qna::check(o.feedforward >= 1, "{}: feedforward must be at least 1, got {}", kName,
             o.feedforward);
  qna::check(o.encoder_blocks >= 0, "{}: encoder_blocks must be at least 0, got {}", kName,
             o.encoder_blocks);
  qna::check(o.decoder_blocks >= 1, "{}: decoder_blocks must be at least 1, got {}", kName,
             o.decoder_blocks);
  qna::check(o.qna_blocks >= 0 && o.qna_first >= 0 && o.qna_replaced >= 0 &&
                 o.qna_first + o.qna_replaced <= o.encoder_blocks,
             "{}: QnA blocks must replace some of the {} encoder blocks, got {} from block {}",
             kName, o.encoder_blocks, o.qna_replaced, o.qna_first);
  return o;
}

std::vector<bool> TransformerOptions::encoder_layers() const {
  std::vector<bool> layers;
  for (int64_t i = 0; i <= encoder_blocks; ++i) {
    if (i == qna_first) layers.insert(layers.end(), qna_blocks, true);
    const bool replaced = i >= qna_first && i < qna_first + qna_replaced;
    if (i < encoder_blocks && !replaced) layers.push_back(false);
  }
  return layers;
}

bool TransformerOptions::has_encoder_norm() const {
  return pre_norm || (qna_blocks > 0 && qna_first + qna_replaced >= encoder_blocks);
}

BlockShape block_shape(const BlockOptions& options) {
  qna::check(
      options.qna.has_value() + options.attention.has_value() + options.mixer.has_value() == 1,
      "Block: exactly one of qna, attention and mixer must be given");
  qna::check(options.drop_path >= 0 && options.drop_path < 1,
             "Block: drop_path must be at least 0 and below 1, got {}", options.drop_path);
  qna::check(options.mlp_ratio > 0, "Block: mlp_ratio must be above 0, got {}", options.mlp_ratio);
  BlockShape shape{};
  shape.kernel_size = shape.stride = {1, 1};
  const auto take = [&](const auto& o) {
    shape.in_features = o.in_features;
    shape.features = o.out_features;
    if constexpr (requires { o.stride; }) {
      shape.kernel_size = o.kernel_size;
      shape.stride = o.stride;
    } else {  // ConvPool's
      shape.kernel_size = {3, 3};
      shape.stride = {2, 2};
    }
  };
  if (options.qna.has_value()) {
    take(complete(*options.qna));
  } else if (options.attention.has_value()) {
    shape.in_features = shape.features = complete(*options.attention).features;
  } else {
    std::visit([&](const auto& o) { take(complete(o)); }, *options.mixer);
  }
  qna::check(shape.strided() || shape.features == shape.in_features,
             "Block: without stride the layer must keep the {} features, got {}", shape.in_features,
             shape.features);
  shape.hidden = std::llround(options.mlp_ratio * static_cast<double>(shape.features));
  qna::check(shape.hidden >= 1, "Block: mlp_ratio must leave at least 1 of {} features, got {}",
             shape.features, options.mlp_ratio);
  return shape;
}

std::array<int64_t, 4> same_padding(std::array<int64_t, 2> kernel_size,
                                    std::array<int64_t, 2> dilation) {
  const int64_t rows = (kernel_size[0] - 1) * dilation[0];
  const int64_t columns = (kernel_size[1] - 1) * dilation[1];
  return {rows / 2, rows - rows / 2, columns / 2, columns - columns / 2};
}

}  // namespace qna::config
