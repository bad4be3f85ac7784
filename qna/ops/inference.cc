#include "qna/ops/inference.h"

#include <ATen/autocast_mode.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/kernels/implementation.h"
#include "qna/ops/layer_tables.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using kernels::PackedWeights;

const float* data(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->const_data_ptr<float>() : nullptr;
}

void check_packed(const PackedWeights& weights, const char* name) {
  check(weights.owner == &kernels::chosen_implementation(),
        "{}: the weights were packed for another kernel than the chosen one; pack them again",
        name);
}

void check_mlp(const PackedMlp& mlp, int64_t features, const char* name) {
  check_packed(mlp.expand, name);
  check_packed(mlp.contract, name);
  check(mlp.expand.inner == features && mlp.contract.inner == mlp.expand.columns &&
            mlp.contract.columns == features,
        "{}: the MLP must take and give {} features, got {} -> {}, {} -> {}", name, features,
        mlp.expand.inner, mlp.expand.columns, mlp.contract.inner, mlp.contract.columns);
}

int64_t rows_of(const at::Tensor& x, int64_t features, const char* name) {
  check(x.dim() >= 1 && x.size(-1) == features, "{}: x must have {} features, got {}", name,
        features, sizes_text(x.sizes()));
  return x.numel() / features;
}

}  // namespace

bool training_kernels_serve(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat &&
         !at::autocast::is_autocast_enabled(at::kCPU);
}

bool inference_kernels_serve(const at::Tensor& x) {
  return training_kernels_serve(x) && !at::GradMode::is_enabled();
}

PackedWeights pack_linear(const at::Tensor& weight, const OptionalTensor& bias) {
  const at::Tensor table = weight.to(at::kFloat);
  const OptionalTensor bias_table = as_table(bias);
  TorchRuntime runtime;
  return kernels::pack_matrix({.inner = table.size(1),
                               .columns = table.size(0),
                               .weight = table.const_data_ptr<float>(),
                               .inner_stride = table.stride(1),
                               .column_stride = table.stride(0),
                               .bias = table_pointer(bias_table)},
                              runtime);
}

at::Tensor dense(const at::Tensor& x, const PackedWeights& weights, const DenseOptions& options) {
  check_packed(weights, "dense");
  const int64_t rows = rows_of(x, weights.inner, "dense");
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weights.columns;
  const at::Tensor y = at::empty(sizes, x.options());
  const at::Tensor input = x.contiguous();
  OptionalTensor residual;
  if (options.residual.has_value()) {
    check(options.residual->sizes() == y.sizes(), "dense: residual must be {}, got {}",
          sizes_text(y.sizes()), sizes_text(options.residual->sizes()));
    residual = options.residual->contiguous();
  }
  TorchRuntime runtime;
  kernels::dense({.rows = rows,
                  .x = input.const_data_ptr<float>(),
                  .norm = options.norm,
                  .weights = &weights,
                  .activation = options.activation,
                  .residual = data(residual),
                  .y = y.data_ptr<float>()},
                 runtime);
  return y;
}

at::Tensor project_mlp(const at::Tensor& x, const at::Tensor& mixed, const PackedWeights& project,
                       const PackedMlp& mlp) {
  check_packed(project, "project_mlp");
  check_mlp(mlp, project.columns, "project_mlp");
  const int64_t rows = rows_of(x, mlp.expand.inner, "project_mlp");
  check(rows_of(mixed, project.inner, "project_mlp") == rows,
        "project_mlp: mixed must have as many rows as x, {}, got {}", sizes_text(x.sizes()),
        sizes_text(mixed.sizes()));
  const at::Tensor input = x.contiguous();
  const at::Tensor added = mixed.contiguous();
  const at::Tensor y = at::empty_like(input);
  TorchRuntime runtime;
  kernels::mlp({.rows = rows,
                .x = input.const_data_ptr<float>(),
                .mixed = added.const_data_ptr<float>(),
                .project = &project,
                .norm = mlp.norm,
                .expand = &mlp.expand,
                .activation = mlp.activation,
                .contract = &mlp.contract,
                .y = y.data_ptr<float>()},
               runtime);
  return y;
}

PackedLayer pack_layer(const LayerParameters& p, const WindowGeometry& geometry) {
  // Any map will do: as large as the window.
  const at::Tensor x =
      at::empty({1, geometry.kernel_size[0] * geometry.dilation[0],
                 geometry.kernel_size[1] * geometry.dilation[1], p.score_weight.size(0)});
  PackedLayer packed{.weights = {},
                     .shape = layer_shape(x, p, std::nullopt, geometry, 1),
                     .geometry = geometry,
                     .in_features = x.size(3),
                     .out_features = p.out_weight.size(2)};
  kernels::LayerArgs<float> args{};
  args.shape = packed.shape;
  args.in_features = packed.in_features;
  args.out_features = packed.out_features;
  const LayerTables tables(p);
  tables.point(args);
  TorchRuntime runtime;
  packed.weights = kernels::pack_layer<float>(args, runtime);
  return packed;
}

at::Tensor layer(const at::Tensor& x, const PackedLayer& packed, const OptionalTensor& mask,
                 kernels::Norm norm, const OptionalTensor& residual, const PackedMlp* mlp) {
  constexpr const char* kName = "layer";
  check_packed(packed.weights, kName);
  kernels::LayerMlp layer_mlp{};
  if (mlp != nullptr) {
    check_mlp(*mlp, packed.out_features, kName);
    layer_mlp = {&mlp->expand, &mlp->contract, mlp->activation, mlp->norm};
  }
  check(x.dim() == 4 && x.size(3) == packed.in_features,
        "{}: x must be [batch, height, width, {}], got {}", kName, packed.in_features,
        sizes_text(x.sizes()));
  const kernels::WindowShape shape =
      make_shape(x.size(0), x.size(1), x.size(2), packed.shape.queries, packed.shape.heads,
                 packed.shape.head_dim, packed.geometry, /*separate=*/false, kName);
  const OptionalTensor taking_part = check_mask(mask, shape, kName);
  const at::Tensor input = x.contiguous();
  const at::Tensor y = at::empty(
      {shape.batch, shape.out_height(), shape.out_width(), packed.out_features}, x.options());
  OptionalTensor added;
  if (residual.has_value()) {
    check(residual->sizes() == y.sizes(), "{}: residual must be {}, got {}", kName,
          sizes_text(y.sizes()), sizes_text(residual->sizes()));
    added = residual->contiguous();
  }
  kernels::LayerArgs<float> args{};
  args.shape = shape;
  args.in_features = packed.in_features;
  args.out_features = packed.out_features;
  args.x = input.const_data_ptr<float>();
  args.mask = mask_pointer(taking_part);
  args.y = y.data_ptr<float>();
  args.norm = norm;
  args.residual = data(added);
  args.packed = &packed.weights;
  args.mlp = mlp == nullptr ? nullptr : &layer_mlp;
  TorchRuntime runtime;
  kernels::layer_forward<float>(args, runtime);
  return y;
}

at::Tensor norm_mean(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon, const OptionalTensor& mask) {
  check(x.dim() == 4, "norm_mean: x must be [batch, height, width, features], got {}",
        sizes_text(x.sizes()));
  const int64_t positions = x.size(1) * x.size(2);
  const int64_t features = x.size(3);
  const at::Tensor input = x.contiguous();
  const OptionalTensor scale = as_table(weight);
  const OptionalTensor shift = as_table(bias);
  OptionalTensor counted;
  if (mask.has_value()) {
    check(mask->scalar_type() == at::kBool && mask->sizes() == x.sizes().slice(0, 3),
          "norm_mean: mask must be bool of {}, got {}", sizes_text(x.sizes().slice(0, 3)),
          sizes_text(mask->sizes()));
    counted = mask->contiguous();
  }
  const uint8_t* counts = mask_pointer(counted);
  const at::Tensor out = at::empty({x.size(0), features}, x.options());
  TorchRuntime runtime;
  runtime.for_each(x.size(0), [&](int64_t image, int) {
    std::vector<double> sum(features, 0.0);
    int64_t count = 0;
    for (int64_t n = image * positions; n < (image + 1) * positions; ++n) {
      if (counts != nullptr && counts[n] == 0) continue;
      ++count;
      const float* row = input.const_data_ptr<float>() + n * features;
      double mean = 0;
      double variance = 0;
      for (int64_t c = 0; c < features; ++c) mean += row[c];
      mean /= static_cast<double>(features);
      for (int64_t c = 0; c < features; ++c) variance += (row[c] - mean) * (row[c] - mean);
      const double factor = 1 / std::sqrt(variance / static_cast<double>(features) + epsilon);
      for (int64_t c = 0; c < features; ++c) sum[c] += (row[c] - mean) * factor;
    }
    float* to = out.data_ptr<float>() + image * features;
    const float* g = table_pointer(scale);
    const float* s = table_pointer(shift);
    for (int64_t c = 0; c < features; ++c) {
      to[c] =
          count == 0 ? 0.0f : static_cast<float>(sum[c] / static_cast<double>(count) * g[c] + s[c]);
    }
  });
  return out;
}

}  // namespace qna::ops
