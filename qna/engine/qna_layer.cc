#include "qna/engine/qna_layer.h"

#include <cmath>

#include "qna/engine/table.h"

namespace qna::engine {
namespace {

// q / (|q| + 1e-6) per head, over sqrt(dim): [L, heads, dim]
Floats scaled_queries(Floats q, const config::QnAOptions& o) {
  const int64_t dim = o.features / o.heads;
  for (int64_t at = 0; at < o.queries * o.features; at += dim) {
    double square = 0;
    for (int64_t d = 0; d < dim; ++d) square += static_cast<double>(q[at + d]) * q[at + d];
    const double length = o.normalize_queries ? std::sqrt(square) + 1e-6 : 1;
    const double factor = 1 / (length * std::sqrt(static_cast<double>(dim)));
    for (int64_t d = 0; d < dim; ++d) q[at + d] = static_cast<float>(q[at + d] * factor);
  }
  return q;
}

// Wk q, per head: [in, L, heads]. rows: how many rows of Wk there are.
Floats times_queries(const Floats& weight, int64_t rows, const Floats& q,
                     const config::QnAOptions& o) {
  const int64_t dim = o.features / o.heads;
  Floats out(rows * o.queries * o.heads);
  for (int64_t c = 0; c < rows; ++c)
    for (int64_t l = 0; l < o.queries; ++l)
      for (int64_t h = 0; h < o.heads; ++h) {
        double sum = 0;
        for (int64_t d = 0; d < dim; ++d) {
          sum += static_cast<double>(weight[c * o.features + h * dim + d]) *
                 q[l * o.features + h * dim + d];
        }
        out[(c * o.queries + l) * o.heads + h] = static_cast<float>(sum);
      }
  return out;
}

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
  const Floats q = scaled_queries(tensors.get("query"), o);
  score_weight = times_queries(tensors.get("key_weight"), o.in_features, q, o);
  value_weight = tensors.get("value_weight");
  out_weight = tensors.get("out_weight");
  if (o.relative_bias) bias = tensors.get("relative_bias");
  if (o.bias) {
    value_bias = tensors.get("value_bias");
    out_bias = tensors.get("out_bias");
    // q . key_bias is the same for all taps, so it can stand in the relative bias.
    const Floats shift = times_queries(tensors.get("key_bias"), 1, q, o);
    bias.resize(o.kernel_size[0] * o.kernel_size[1] * o.queries * o.heads, 0.0f);
    for (size_t i = 0; i < bias.size(); ++i) bias[i] += shift[i % shift.size()];
  }
  tap_weights = make_tap_weights(tensors, o);
  if (norm != nullptr) {
    // A shift of the scores is the same for all taps, and the softmax takes it out again.
    value_bias.resize(o.features, 0.0f);
    for (int64_t d = 0; d < o.features; ++d) {
      double sum = value_bias[d];
      for (int64_t c = 0; c < o.in_features; ++c) {
        sum += static_cast<double>(norm->bias[c]) * value_weight[c * o.features + d];
      }
      value_bias[d] = static_cast<float>(sum);
    }
    const int64_t scores = o.queries * o.heads;
    for (int64_t c = 0; c < o.in_features; ++c) {
      for (int64_t d = 0; d < o.features; ++d) value_weight[c * o.features + d] *= norm->weight[c];
      for (int64_t s = 0; s < scores; ++s) score_weight[c * scores + s] *= norm->weight[c];
    }
  }
  if (!scale.empty()) {
    for (size_t i = 0; i < out_weight.size(); ++i) out_weight[i] *= scale[i % o.out_features];
    for (size_t i = 0; i < out_bias.size(); ++i) out_bias[i] *= scale[i];
  }
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
