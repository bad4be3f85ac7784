#include "qna/engine/qna_layer.h"

#include "qna/engine/table.h"
#include "qna/kernels/qna_layer_fold.h"

namespace qna::engine {
namespace {

Floats make_tap_weights(const Tensors& tensors, const config::QnAOptions& o) {
  const int64_t taps = o.kernel_size[0] * o.kernel_size[1];
  const int64_t scores = o.queries * o.heads;
  if (o.has_scale_per_tap()) return tensors.get("attention_scale");
  Floats one;  // of one tap, the same for all
  switch (o.attention_scale) {
    case config::AttentionScale::kPerQuery:
      one = tensors.get("attention_scale");
      break;
    case config::AttentionScale::kAverage:
      one.assign(scores, static_cast<float>(1.0 / static_cast<double>(o.queries)));
      break;
    case config::AttentionScale::kSigned:
      one.assign(scores, 1.0f);
      std::fill(one.begin() + scores / 2, one.end(), -1.0f);
      break;
    default:
      return {};
  }
  Floats all;
  for (int64_t t = 0; t < taps; ++t) all.insert(all.end(), one.begin(), one.end());
  return all;
}

const float* pointer(const Floats& floats) { return floats.empty() ? nullptr : floats.data(); }

}  // namespace

QnATables::QnATables(const Tensors& tensors, const config::QnAOptions& options_in,
                     const NormWeights* norm, const Floats& scale)
    : options(config::complete(options_in)) {
  const config::QnAOptions& o = options;
  value_weight = tensors.get("value_weight");
  out_weight = tensors.get("out_weight");
  if (o.relative_bias) bias = tensors.get("relative_bias");
  if (o.bias) {
    value_bias = tensors.get("value_bias");
    out_bias = tensors.get("out_bias");
  }
  tap_weights = make_tap_weights(tensors, o);
  fold(tensors.get("query"), tensors.get("key_weight"), norm);
  if (!scale.empty()) {
    for (size_t i = 0; i < out_weight.size(); ++i) out_weight[i] *= scale[i % o.out_features];
    for (size_t i = 0; i < out_bias.size(); ++i) out_bias[i] *= scale[i];
  }
}

void QnATables::fold(const Floats& query, const Floats& key_weight, const NormWeights* norm) {
  const config::QnAOptions& o = options;
  score_weight.resize(o.in_features * o.queries * o.heads);
  const Floats values = value_weight, shift = value_bias;
  if (norm != nullptr) value_bias.resize(o.features);
  ThreadRuntime runtime;
  kernels::fold_qna_layer<float>(
      {.in = {.in_features = o.in_features,
              .queries = o.queries,
              .heads = o.heads,
              .head_dim = o.features / o.heads,
              .normalize = o.normalize_queries,
              .stop_gradient = o.normalize_stop_gradient,
              .query = query.data(),
              .key_weight = key_weight.data(),
              .value_weight = values.data(),
              .value_bias = pointer(shift),
              .norm_scale = norm == nullptr ? nullptr : norm->weight.data(),
              .norm_shift = norm == nullptr ? nullptr : norm->bias.data()},
       .score_weight = score_weight.data(),
       .value_weight = value_weight.data(),
       .value_bias = value_bias.data()},
      runtime);
}

void QnATables::point(kernels::QnALayerArgs<float>& args) const {
  args.score_weight = pointer(score_weight);
  args.value_weight = pointer(value_weight);
  args.value_bias = pointer(value_bias);
  args.out_weight = pointer(out_weight);
  args.out_bias = pointer(out_bias);
  args.bias = pointer(bias);
  args.tap_weights = pointer(tap_weights);
}

kernels::WindowShape window_shape(const config::QnAOptions& o, int64_t batch, int64_t height,
                                  int64_t width) {
  const auto& padding = *o.padding;
  const kernels::WindowShape shape{.batch = batch,
                                   .height = height,
                                   .width = width,
                                   .heads = o.heads,
                                   .head_dim = o.features / o.heads,
                                   .queries = o.queries,
                                   .kernel_h = o.kernel_size[0],
                                   .kernel_w = o.kernel_size[1],
                                   .stride_h = o.stride[0],
                                   .stride_w = o.stride[1],
                                   .pad_top = padding[0],
                                   .pad_bottom = padding[1],
                                   .pad_left = padding[2],
                                   .pad_right = padding[3],
                                   .dilation_h = o.dilation[0],
                                   .dilation_w = o.dilation[1],
                                   .separate = o.upsample > 1};
  kernels::check_shape(shape, "QnA");
  return shape;
}

QnALayer::QnALayer(const Tensors& tensors, const config::QnAOptions& options,
                   const NormWeights* norm, const Floats& scale) {
  const QnATables tables(tensors, options, norm, scale);
  scores_ = tables.scores(norm == nullptr ? kernels::Norm{} : norm->kernel());
  const config::QnAOptions& o = scores_.options;
  kernels::QnALayerArgs<float> args{};
  // Any map will do: as large as the window.
  args.shape =
      window_shape(o, 1, o.kernel_size[0] * o.dilation[0], o.kernel_size[1] * o.dilation[1]);
  args.in_features = o.in_features;
  args.out_features = o.out_features;
  args.upsample = o.upsample;
  args.weight_type = tensors.weight_type();
  tables.point(args);
  ThreadRuntime runtime;
  packed_ = kernels::pack_qna_layer<float>(args, runtime);
}

std::array<int64_t, 2> QnALayer::out_size(int64_t height, int64_t width) const {
  const kernels::WindowShape shape = window_shape(options(), 1, height, width);
  return {shape.out_height() * options().upsample, shape.out_width() * options().upsample};
}

void QnALayer::run(const Map& x, const Map& y, Mask mask, Worker& worker, const float* residual,
                   const kernels::QnALayerMlp* mlp) const {
  const config::QnAOptions& o = options();
  kernels::QnALayerArgs<float> args{};
  args.shape = window_shape(o, x.batch, x.height, x.width);
  args.in_features = o.in_features;
  args.out_features = o.out_features;
  args.upsample = o.upsample;
  args.x = x.data;
  args.mask = mask;
  args.y = y.data;
  args.norm = scores_.norm;
  args.residual = residual;
  args.packed = &packed_;
  args.mlp = mlp;
  kernels::qna_layer_forward<float>(args, worker.runtime);
}

QnAOverMap::QnAOverMap(const Tensors& tensors, const config::QnAOptions& options,
                       const NormWeights* norm)
    : tables_(tensors, options, norm, {}) {
  if (norm != nullptr) norm_ = norm->kernel();
}

QnATables QnAOverMap::tables_for(int64_t height, int64_t width) const {
  QnATables resized = tables_;
  resized.options.kernel_size = {height, width};
  const auto resize = [&](Floats& to, const Floats& from) {
    if (from.empty()) return;
    to.resize(height * width * columns());
    resize_bicubic(to.data(), from.data(), tables_.options.kernel_size, {height, width}, columns());
  };
  resize(resized.bias, tables_.bias);
  resize(resized.tap_weights, tables_.tap_weights);
  return resized;
}

void QnAOverMap::run(const Map& x, const Map& y, Mask mask, Worker& worker) const {
  Scope scope(worker.arena);
  const std::array<int64_t, 2> size = {x.height, x.width};
  const std::array<int64_t, 2> trained = tables_.options.kernel_size;
  const auto resized = [&](const float* table) -> const float* {
    if (table == nullptr || size == trained) return table;
    float* out = scope.floats(size[0] * size[1] * columns());
    resize_bicubic(out, table, trained, size, columns());
    return out;
  };
  config::QnAOptions options = tables_.options;
  options.kernel_size = size;
  kernels::QnALayerArgs<float> args{};
  args.shape = window_shape(options, x.batch, x.height, x.width);
  args.in_features = x.features;
  args.out_features = y.features;
  args.x = x.data;
  args.mask = mask;
  args.y = y.data;
  args.norm = norm_;
  tables_.point(args);
  args.bias = resized(args.bias);
  args.tap_weights = resized(args.tap_weights);
  kernels::qna_layer_forward<float>(args, worker.runtime);
}

}  // namespace qna::engine
