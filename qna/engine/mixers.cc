#include "qna/engine/mixers.h"

#include <cmath>
#include <cstring>

#include "qna/kernels/halo_attention.h"
#include "qna/kernels/pool.h"
#include "qna/kernels/sasa.h"

namespace qna::engine {
namespace {

// Rows [groups, a, b] of a matrix as [groups, b, a].
Matrix swap_rows(const Matrix& m, int64_t groups, int64_t a, int64_t b) {
  Matrix out{m.out, m.in, Floats(m.weight.size())};
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < a; ++i)
      for (int64_t k = 0; k < b; ++k) {
        std::memcpy(out.weight.data() + ((g * b + k) * a + i) * m.in,
                    m.weight.data() + ((g * a + i) * b + k) * m.in, m.in * sizeof(float));
      }
  return out;
}

// Columns [a, b] of a matrix as [b, a].
Matrix swap_columns(const Matrix& m, int64_t a, int64_t b) {
  Matrix out{m.out, m.in, Floats(m.weight.size())};
  for (int64_t r = 0; r < m.out; ++r)
    for (int64_t i = 0; i < a; ++i)
      for (int64_t k = 0; k < b; ++k) {
        out.weight[r * m.in + k * a + i] = m.weight[r * m.in + i * b + k];
      }
  return out;
}

// The products of attention where pixels have queries of their own.
struct QueryProducts {
  Convolution query;                 // of every stride-th pixel
  kernels::PackedWeights key_value;  // of all
  kernels::PackedWeights project;
  kernels::Norm norm;

  // Queries, keys beside values, and room for what the attention makes of them.
  struct Maps {
    const float* query;      // like y
    const float* key_value;  // [x's rows, 2, features]
    float* mixed;            // like y
  };
  Maps run(const Map& x, const Map& y, Scope& scope, Worker& worker) const {
    Map q = y;
    q.data = scope.floats(y.size());
    float* kv = scope.floats(2 * x.rows() * y.features);
    query.run(x, q, worker);
    dense(x.data, x.rows(), key_value, kv, worker, {.norm = norm});
    return {q.data, kv, scope.floats(y.size())};
  }
  size_t bytes() const { return query.weights.bytes() + key_value.bytes() + project.bytes(); }
};

QueryProducts query_products(Matrix qkv, const Matrix& project, kernels::WeightType type,
                             const NormWeights& norm, std::array<int64_t, 2> stride) {
  const int64_t features = qkv.out / 3;
  qkv.fold_norm(norm);
  return {strided_product(rows_of(qkv, 0, features), type, stride, norm.kernel()),
          rows_of(qkv, features, 2 * features).pack(type), project.pack(type), norm.kernel()};
}

template <typename Options>
float score_scale(const Options& o) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(o.out_features / o.heads)));
}

class SasaMixer final : public Mixer {
 public:
  SasaMixer(const Tensors& tensors, const config::SasaOptions& options, const NormWeights& norm)
      : o_(config::complete(options)), bias_(tensors.get("relative_bias")) {
    // The kernels want the heads side by side in memory, [dim, heads].
    const int64_t dim = o_.out_features / o_.heads;
    Matrix qkv = swap_rows(linear(tensors.in("qkv"), 3 * o_.out_features, o_.in_features, false), 3,
                           o_.heads, dim);
    const int64_t query_numbers = o_.out_features * o_.in_features;
    for (int64_t i = 0; i < query_numbers; ++i) qkv.weight[i] *= score_scale(o_);
    const Matrix project = swap_columns(
        linear(tensors.in("proj"), o_.out_features, o_.out_features, false), o_.heads, dim);
    products_ = query_products(std::move(qkv), project, tensors.weight_type(), norm, o_.stride);
  }

  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const override {
    Scope scope(worker.arena);
    const int64_t features = o_.out_features;
    const auto [q, kv, mixed] = products_.run(x, y, scope, worker);
    const auto& padding = *o_.padding;
    kernels::WindowShape shape{.batch = x.batch,
                               .height = x.height,
                               .width = x.width,
                               .heads = o_.heads,
                               .head_dim = features / o_.heads,
                               .queries = 1,
                               .kernel_h = o_.kernel_size[0],
                               .kernel_w = o_.kernel_size[1],
                               .stride_h = o_.stride[0],
                               .stride_w = o_.stride[1],
                               .pad_top = padding[0],
                               .pad_bottom = padding[1],
                               .pad_left = padding[2],
                               .pad_right = padding[3],
                               .dilation_h = o_.dilation[0],
                               .dilation_w = o_.dilation[1]};
    kernels::check_shape(shape, "Sasa");
    const kernels::ValueLayout one{features, 1, o_.heads}, two{2 * features, 1, o_.heads};
    kernels::sasa_forward<float>({.shape = shape,
                                  .q = {q, one},
                                  .k = {kv, two},
                                  .v = {kv + features, two},
                                  .bias = bias_.data(),
                                  .mask = mask,
                                  .out = {mixed, one}},
                                 worker.runtime);
    dense(mixed, y.rows(), products_.project, y.data, worker);
  }
  size_t bytes() const override { return products_.bytes(); }

 private:
  config::SasaOptions o_;
  Floats bias_;
  QueryProducts products_;
};

class HaloMixer final : public Mixer {
 public:
  HaloMixer(const Tensors& tensors, const config::HaloAttentionOptions& options,
            const NormWeights& norm)
      : o_(config::complete(options)), bias_(tensors.get("relative_bias")) {
    products_ =
        query_products(linear(tensors.in("qkv"), 3 * o_.out_features, o_.in_features, false),
                       linear(tensors.in("proj"), o_.out_features, o_.out_features, false),
                       tensors.weight_type(), norm, o_.stride);
  }

  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const override {
    Scope scope(worker.arena);
    const int64_t features = o_.out_features;
    const auto [q, kv, mixed] = products_.run(x, y, scope, worker);
    kernels::halo_attention({.batch = x.batch,
                             .height = x.height,
                             .width = x.width,
                             .heads = o_.heads,
                             .head_dim = features / o_.heads,
                             .block_h = o_.block[0],
                             .block_w = o_.block[1],
                             .halo_h = o_.halo()[0],
                             .halo_w = o_.halo()[1],
                             .stride_h = o_.stride[0],
                             .stride_w = o_.stride[1],
                             .q = q,
                             .k = kv,
                             .k_stride = 2 * features,
                             .v = kv + features,
                             .v_stride = 2 * features,
                             .scale = score_scale(o_),
                             .bias = bias_.data(),
                             .mask = mask,
                             .out = mixed},
                            worker.runtime);
    dense(mixed, y.rows(), products_.project, y.data, worker);
  }
  size_t bytes() const override { return products_.bytes(); }

 private:
  config::HaloAttentionOptions o_;
  Floats bias_;
  QueryProducts products_;
};

// Taps outside the map read 0 behind the norm, so that cannot be folded into the weights.
class NormedMap {
 public:
  NormedMap(const NormWeights& norm, const Map& x, Mask mask, Scope& scope, Worker& worker)
      : map(x) {
    map.data = scope.floats(x.size());
    norm.run(x, map.data, worker);
    zero_masked(map, mask);
  }
  Map map;
};

kernels::ConvolutionShape same_shape(std::array<int64_t, 2> kernel, std::array<int64_t, 2> stride) {
  const auto padding = config::same_padding(kernel);
  return {.kernel_h = kernel[0],
          .kernel_w = kernel[1],
          .stride_h = stride[0],
          .stride_w = stride[1],
          .pad_top = padding[0],
          .pad_left = padding[2]};
}

class ConvolutionMixer final : public Mixer {
 public:
  ConvolutionMixer(const Tensors& tensors, const config::ConvolutionOptions& options,
                   const NormWeights& norm)
      : norm_(norm) {
    const config::ConvolutionOptions o = config::complete(options);
    conv_ = {.shape = same_shape(o.kernel_size, o.stride),
             .weights = window_matrix(tensors.in("conv").get("weight"), o.out_features,
                                      o.in_features, o.kernel_size[0], o.kernel_size[1])
                            .pack(tensors.weight_type())};
  }
  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const override {
    Scope scope(worker.arena);
    conv_.run(NormedMap(norm_, x, mask, scope, worker).map, y, worker);
  }
  size_t bytes() const override { return conv_.weights.bytes(); }

 private:
  NormWeights norm_;
  Convolution conv_;
};

class DepthwiseMixer final : public Mixer {
 public:
  DepthwiseMixer(const Tensors& tensors, const config::ConvolutionOptions& options,
                 const NormWeights& norm)
      : norm_(norm) {
    const config::ConvolutionOptions o = config::complete(options);
    conv_ = {.shape = same_shape(o.kernel_size, o.stride),
             .weight = taps_first(tensors.in("conv").get("weight"), o.in_features)};
    project_ = linear(tensors.in("proj"), o.out_features, o.in_features, false)
                   .pack(tensors.weight_type());
  }
  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const override {
    Scope scope(worker.arena);
    const Map mixed{y.batch, y.height, y.width, x.features, scope.floats(y.rows() * x.features)};
    conv_.run(NormedMap(norm_, x, mask, scope, worker).map, mixed, worker);
    dense(mixed.data, y.rows(), project_, y.data, worker);
  }
  size_t bytes() const override { return conv_.bytes() + project_.bytes(); }

 private:
  NormWeights norm_;
  Depthwise conv_;
  kernels::PackedWeights project_;
};

class ConvPoolMixer final : public Mixer {
 public:
  ConvPoolMixer(const Tensors& tensors, const config::ConvPoolOptions& options,
                const NormWeights& norm)
      : norm_(norm), pool_(tensors, options) {}
  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const override {
    Scope scope(worker.arena);
    pool_.run(NormedMap(norm_, x, mask, scope, worker).map, y, mask, worker);
  }
  size_t bytes() const override { return pool_.bytes(); }

 private:
  NormWeights norm_;
  ConvPool pool_;
};

std::unique_ptr<const Mixer> make(const Tensors& tensors, const config::SasaOptions& options,
                                  const NormWeights& norm) {
  return std::make_unique<SasaMixer>(tensors, options, norm);
}
std::unique_ptr<const Mixer> make(const Tensors& tensors,
                                  const config::HaloAttentionOptions& options,
                                  const NormWeights& norm) {
  return std::make_unique<HaloMixer>(tensors, options, norm);
}
std::unique_ptr<const Mixer> make(const Tensors& tensors, const config::ConvolutionOptions& options,
                                  const NormWeights& norm) {
  if (options.depthwise) return std::make_unique<DepthwiseMixer>(tensors, options, norm);
  return std::make_unique<ConvolutionMixer>(tensors, options, norm);
}
std::unique_ptr<const Mixer> make(const Tensors& tensors, const config::ConvPoolOptions& options,
                                  const NormWeights& norm) {
  return std::make_unique<ConvPoolMixer>(tensors, options, norm);
}

}  // namespace

std::unique_ptr<const Mixer> make_mixer(const Tensors& tensors, const config::MixerOptions& options,
                                        const NormWeights& norm) {
  return std::visit([&](const auto& o) { return make(tensors, o, norm); }, options);
}

void max_pool_by_two(const Map& x, const Map& y, Mask mask, Worker& worker) {
  kernels::max_pool({.shape = {.batch = x.batch,
                               .height = x.height,
                               .width = x.width,
                               .in_features = x.features,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .stride_h = 2,
                               .stride_w = 2,
                               .out_height = y.height,
                               .out_width = y.width},
                     .x = x.data,
                     .mask = mask,
                     .y = y.data},
                    worker.runtime);
  if (mask == nullptr) return;
  Scope scope(worker.arena);
  zero_masked(y, every_nth(mask, x.batch, x.height, x.width, 2, scope));
}

ConvPool::ConvPool(const Tensors& tensors, const config::ConvPoolOptions& options)
    : norm_(tensors.in("norm"), config::kBlockNormEpsilon) {
  const config::ConvPoolOptions o = config::complete(options);
  Matrix matrix =
      window_matrix(tensors.in("conv").get("weight"), o.out_features, o.in_features, 3, 3);
  matrix.bias = tensors.in("conv").get("bias");
  conv_ = {.shape = same_shape({3, 3}, {1, 1}), .weights = matrix.pack(tensors.weight_type())};
}

void ConvPool::run(const Map& x, const Map& y, Mask mask, Worker& worker) const {
  Scope scope(worker.arena);
  Map map{x.batch, x.height, x.width, y.features, scope.floats(x.rows() * y.features)};
  conv_.run(x, map, worker);
  norm_.run(map, map.data, worker);
  max_pool_by_two(map, y, mask, worker);
}

}  // namespace qna::engine
