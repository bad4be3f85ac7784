#include "qna/engine/transformer.h"

#include <cmath>

#include "qna/kernels/multihead_attention.h"

namespace qna::engine {
namespace {

constexpr double kEpsilon = config::kTorchNormEpsilon;

Map rows_map(int64_t batch, int64_t rows, int64_t features, float* data) {
  return {batch, 1, rows, features, data};
}

// out = x + added, which repeats.
void sum(float* out, const float* x, int64_t count, const float* added, int64_t period,
         Worker& worker) {
  std::copy_n(x, count, out);
  add(out, added, count, period, worker.runtime);
}

}  // namespace

MultiheadAttention::MultiheadAttention(const Tensors& tensors, int64_t features, int64_t heads)
    : features_(features), heads_(heads) {
  const Matrix all{3 * features, features, tensors.get("in_proj_weight"),
                   tensors.get("in_proj_bias")};
  query_key_ = rows_of(all, 0, 2 * features).pack(tensors.weight_type());
  query_ = rows_of(all, 0, features).pack(tensors.weight_type());
  key_ = rows_of(all, features, features).pack(tensors.weight_type());
  value_ = rows_of(all, 2 * features, features).pack(tensors.weight_type());
  out_ = linear(tensors.in("out_proj"), features, features).pack(tensors.weight_type());
}

size_t MultiheadAttention::bytes() const {
  return query_key_.bytes() + query_.bytes() + key_.bytes() + value_.bytes() + out_.bytes();
}

void MultiheadAttention::run(const Input& in, const float* residual, float* y, Worker& worker,
                             float* weights) const {
  Scope scope(worker.arena);
  const int64_t query_rows = in.batch * in.queries, key_rows = in.batch * in.keys;
  const bool together = in.query == in.key;
  const int64_t stride = together ? 2 * features_ : features_;
  float* q = scope.floats(query_rows * stride);
  float* k = together ? q + features_ : scope.floats(key_rows * features_);
  float* v = scope.floats(key_rows * features_);
  float* mixed = scope.floats(query_rows * features_);
  if (together) {
    dense(in.query, query_rows, query_key_, q, worker);
  } else {
    dense(in.query, query_rows, query_, q, worker);
    dense(in.key, key_rows, key_, k, worker);
  }
  dense(in.value, key_rows, value_, v, worker);
  const int64_t dim = features_ / heads_;
  kernels::multihead_attention(
      {.batch = in.batch,
       .queries = in.queries,
       .keys = in.keys,
       .heads = heads_,
       .head_dim = dim,
       .q = q,
       .q_stride = stride,
       .k = k,
       .k_stride = stride,
       .v = v,
       .v_stride = features_,
       .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
       .mask = in.mask,
       .out = mixed,
       .weights = weights},
      worker.runtime);
  dense(mixed, query_rows, out_, y, worker, {.residual = residual});
}

FeedForward::FeedForward(const Tensors& tensors, int64_t features, int64_t hidden,
                         const NormWeights* norm) {
  Matrix expand = linear(tensors.in("linear1"), hidden, features);
  if (norm != nullptr) {
    expand.fold_norm(*norm);
    norm_ = norm->kernel();
  }
  expand_ = expand.pack(tensors.weight_type());
  contract_ = linear(tensors.in("linear2"), features, hidden).pack(tensors.weight_type());
}

void FeedForward::run(float* x, int64_t rows, Worker& worker) const {
  kernels::mlp({.rows = rows,
                .x = x,
                .norm = norm_,
                .expand = &expand_,
                .activation = kernels::Activation::kRelu,
                .contract = &contract_,
                .y = x},
               worker.runtime);
}

// ---- encoder ----

Encoder::Layer::Layer(const Tensors& tensors, const config::TransformerOptions& o)
    : pre_norm(o.pre_norm),
      norm1(tensors.in("norm1"), kEpsilon),
      norm2(tensors.in("norm2"), kEpsilon),
      attention(tensors.in("self_attn"), o.features, o.heads),
      feed_forward(tensors, o.features, o.feedforward, o.pre_norm ? &norm2 : nullptr) {}

void Encoder::Layer::run(const Map& x, const float* positions, int64_t period, Mask mask,
                         Worker& worker) const {
  Scope scope(worker.arena);
  const float* values = x.data;
  if (pre_norm) {
    float* normed = scope.floats(x.size());
    norm1.run(x, normed, worker);
    values = normed;
  }
  float* placed = scope.floats(x.size());
  sum(placed, values, x.size(), positions, period, worker);
  attention.run({.batch = x.batch,
                 .queries = x.positions(),
                 .keys = x.positions(),
                 .query = placed,
                 .key = placed,
                 .value = values,
                 .mask = mask},
                x.data, x.data, worker);
  if (!pre_norm) norm1.run(x, x.data, worker);
  feed_forward.run(x.data, x.rows(), worker);
  if (!pre_norm) norm2.run(x, x.data, worker);
}

Encoder::Encoder(const Tensors& tensors, const config::TransformerOptions& o) {
  const std::vector<bool> layers = o.encoder_layers();
  for (size_t i = 0; i < layers.size(); ++i) {
    const Tensors layer = tensors.in("layers", i);
    Step& step = steps_.emplace_back();
    if (layers[i]) {
      step.block = std::make_unique<Block>(layer, o.qna_block);
    } else {
      step.layer = std::make_unique<Layer>(layer, o);
    }
  }
  if (o.has_encoder_norm()) norm_.emplace(tensors.in("norm"), kEpsilon);
}

size_t Encoder::bytes() const {
  size_t sum = 0;
  for (const Step& step : steps_) {
    sum += step.block ? step.block->bytes()
                      : step.layer->attention.bytes() + step.layer->feed_forward.bytes();
  }
  return sum;
}

void Encoder::run(const Map& x, const float* positions, int64_t period, Mask mask,
                  Worker& worker) const {
  Scope scope(worker.arena);
  Map map = x, other = x;
  other.data = scope.floats(x.size());
  for (const Step& step : steps_) {
    if (step.layer) {
      step.layer->run(map, positions, period, mask, worker);
    } else {
      step.block->run(map, other, mask, worker);
      std::swap(map.data, other.data);
    }
  }
  if (norm_) {
    norm_->run(map, x.data, worker);
  } else if (map.data != x.data) {
    std::copy_n(map.data, x.size(), x.data);
  }
}

// ---- decoder ----

Decoder::Layer::Layer(const Tensors& tensors, const config::TransformerOptions& o)
    : pre_norm(o.pre_norm),
      norm1(tensors.in("norm1"), kEpsilon),
      norm2(tensors.in("norm2"), kEpsilon),
      norm3(tensors.in("norm3"), kEpsilon),
      self_attention(tensors.in("self_attn"), o.features, o.heads),
      attention_to_map(tensors.in("multihead_attn"), o.features, o.heads),
      feed_forward(tensors, o.features, o.feedforward, o.pre_norm ? &norm3 : nullptr) {}

void Decoder::Layer::run(const Memory& memory, const Map& x, const float* queries, float* attention,
                         Worker& worker) const {
  Scope scope(worker.arena);
  float* placed = scope.floats(x.size());
  float* normed = pre_norm ? scope.floats(x.size()) : x.data;
  if (pre_norm) norm1.run(x, normed, worker);
  sum(placed, normed, x.size(), queries, x.size(), worker);
  self_attention.run({.batch = x.batch,
                      .queries = x.width,
                      .keys = x.width,
                      .query = placed,
                      .key = placed,
                      .value = normed,
                      .mask = nullptr},
                     x.data, x.data, worker);
  (pre_norm ? norm2 : norm1).run(x, normed, worker);
  sum(placed, normed, x.size(), queries, x.size(), worker);
  attention_to_map.run({.batch = x.batch,
                        .queries = x.width,
                        .keys = memory.positions,
                        .query = placed,
                        .key = memory.keys,
                        .value = memory.values,
                        .mask = memory.mask},
                       x.data, x.data, worker, attention);
  if (!pre_norm) norm2.run(x, x.data, worker);
  feed_forward.run(x.data, x.rows(), worker);
  if (!pre_norm) norm3.run(x, x.data, worker);
}

Decoder::Decoder(const Tensors& tensors, const config::TransformerOptions& o)
    : norm_(tensors.in("norm"), kEpsilon), features_(o.features) {
  for (int64_t i = 0; i < o.decoder_blocks; ++i) {
    layers_.push_back(std::make_unique<Layer>(tensors.in("layers", i), o));
  }
}

size_t Decoder::bytes() const {
  size_t sum = 0;
  for (const auto& layer : layers_) {
    sum += layer->self_attention.bytes() + layer->attention_to_map.bytes() +
           layer->feed_forward.bytes();
  }
  return sum;
}

void Decoder::run(const Memory& memory, float* queries, int64_t count,
                  FunctionRef<void(size_t, const float*)> result, float* attention,
                  Worker& worker) const {
  Scope scope(worker.arena);
  const Map x =
      rows_map(memory.batch, count, features_, scope.floats(memory.batch * count * features_));
  // The first layer starts from nothing but the queries, which every layer adds.
  std::fill_n(x.data, x.size(), 0.0f);
  float* normed = scope.floats(x.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    layers_[i]->run(memory, x, queries, last ? attention : nullptr, worker);
    norm_.run(x, normed, worker);
    result(i, normed);
  }
}

}  // namespace qna::engine
