#include "qna/engine/block.h"

#include "qna/kernels/pool.h"

namespace qna::engine {

Block::Block(const Tensors& tensors, const config::BlockOptions& o)
    : shape_(config::block_shape(o)),
      padding_(config::same_padding(shape_.kernel_size)),
      average_pool_skip_(o.average_pool_skip),
      norm1_(tensors.in("norm1"), config::kBlockNormEpsilon) {
  const NormWeights norm2(tensors.in("norm2"), config::kBlockNormEpsilon);
  const bool scaled = o.layer_scale > 0;
  const Floats scale1 = scaled ? tensors.get("scale1") : Floats{};
  const Floats scale2 = scaled ? tensors.get("scale2") : Floats{};
  if (o.qna) {
    qna_.emplace(tensors.in("qna"), *o.qna, &norm1_, scale1);
    padding_ = *qna_->options().padding;
  } else if (o.attention) {
    attention_.emplace(tensors.in("attention"), *o.attention, norm1_, scale1);
  } else {
    mixer_ = make_mixer(tensors.in("mixer"), *o.mixer, norm1_);
    mixer_scale_ = scale1;
  }
  if (strided()) {
    // The pooled map has its size already.
    const std::array<int64_t, 2> one = {1, 1};
    skip_ = strided_product(linear(tensors.in("skip"), shape_.features, shape_.in_features, false),
                            tensors.weight_type(), average_pool_skip_ ? one : shape_.stride);
  }
  expand_ = linear(tensors.in("mlp.fc1"), shape_.hidden, shape_.features)
                .fold_norm(norm2)
                .pack(tensors.weight_type());
  contract_ = linear(tensors.in("mlp.fc2"), shape_.features, shape_.hidden)
                  .scale_rows(scale2)
                  .pack(tensors.weight_type());
  mlp_ = {&expand_, &contract_, o.activation, norm2.kernel()};
}

size_t Block::bytes() const {
  size_t sum = expand_.bytes() + contract_.bytes();
  if (qna_) sum += qna_->bytes();
  if (attention_) sum += attention_->bytes();
  if (mixer_) sum += mixer_->bytes();
  if (skip_) sum += skip_->weights.bytes();
  return sum;
}

void Block::run_skip(const Map& x, const Map& y, Worker& worker) const {
  if (!average_pool_skip_) return skip_->run(x, y, worker);
  Scope scope(worker.arena);
  const Map pooled{y.batch, y.height, y.width, x.features, scope.floats(y.rows() * x.features)};
  kernels::average_pool({.shape = {.batch = x.batch,
                                   .height = x.height,
                                   .width = x.width,
                                   .in_features = x.features,
                                   .kernel_h = shape_.kernel_size[0],
                                   .kernel_w = shape_.kernel_size[1],
                                   .stride_h = shape_.stride[0],
                                   .stride_w = shape_.stride[1],
                                   .pad_top = padding_[0],
                                   .pad_left = padding_[2],
                                   .out_height = y.height,
                                   .out_width = y.width},
                         .x = x.data,
                         .y = pooled.data},
                        worker.runtime);
  skip_->run(pooled, y, worker);
}

void Block::run_mlp(const Map& x, const float* mixed, const kernels::PackedWeights* project,
                    const Map& y, Worker& worker) const {
  kernels::mlp({.rows = y.rows(),
                .x = x.data,
                .mixed = mixed,
                .project = project,
                .norm = mlp_.norm,
                .expand = mlp_.expand,
                .activation = mlp_.activation,
                .contract = mlp_.contract,
                .y = y.data},
               worker.runtime);
}

void Block::run_mixer(const Map& x, const Map& y, Mask mask, Worker& worker) const {
  Scope scope(worker.arena);
  Map mixed = y;
  mixed.data = scope.floats(y.size());
  mixer_->run(x, mixed, mask, worker);
  if (!mixer_scale_.empty()) {
    for (int64_t i = 0; i < mixed.size(); ++i) mixed.data[i] *= mixer_scale_[i % mixed.features];
  }
  if (strided()) {
    run_skip(x, y, worker);
    add(y.data, mixed.data, y.size(), y.size(), worker.runtime);
    run_mlp(y, nullptr, nullptr, y, worker);
  } else {
    add(mixed.data, x.data, y.size(), y.size(), worker.runtime);
    run_mlp(mixed, nullptr, nullptr, y, worker);
  }
}

void Block::run(const Map& x, const Map& y, Mask mask, Worker& worker) const {
  zero_masked(x, mask);
  if (mixer_) return run_mixer(x, y, mask, worker);
  if (qna_) {
    if (strided()) run_skip(x, y, worker);
    return qna_->run(x, y, mask, worker, strided() ? y.data : x.data, &mlp_);
  }
  Scope scope(worker.arena);
  float* mixed = scope.floats(x.size());
  attention_->mix(x, mixed, mask, worker);
  run_mlp(x, mixed, &attention_->project(), y, worker);
}

}  // namespace qna::engine
