#include "qna/kernels/qna_layer.h"

#include <type_traits>

#include "operators.h"
#include "qna/base/error.h"
#include "qna/base/text.h"
#include "runtime.h"

namespace qna::python {
namespace {

using kernels::WindowShape;

// What stands around the layer in a block.
struct Branch {
  double epsilon;
  OptionalTensor drop_factor;
  bool residual;
};

struct Layer {
  const Tensor &score_weight, &value_weight;
  const OptionalTensor& value_bias;
  const Tensor& out_weight;
  const OptionalTensor &out_bias, &bias, &tap_weights;
};

WindowShape check_layer(const Tensor& x, const Layer& p, const Geometry& geometry, int64_t upsample,
                        const char* caller) {
  check_map(x, 4, "x", caller);
  check(p.score_weight.dim() == 3 && p.value_weight.dim() == 3 && p.out_weight.dim() == 3,
        "{}: the weights must have 3 dimensions, got {}, {} and {}", caller, p.score_weight.dim(),
        p.value_weight.dim(), p.out_weight.dim());
  const int64_t in = x.size(3), out = p.out_weight.size(2);
  const int64_t queries = p.score_weight.size(1), heads = p.value_weight.size(1),
                dim = p.value_weight.size(2);
  check(in >= 1 && out >= 1, "{}: there must be at least 1 feature, got {} in and {} out", caller,
        in, out);
  check_sizes(p.score_weight, {in, queries, heads}, "score_weight", caller);
  check_sizes(p.value_weight, {in, heads, dim}, "value_weight", caller);
  check_sizes(p.value_bias, {heads, dim}, "value_bias", caller);
  check_sizes(p.out_weight, {heads, dim, out}, "out_weight", caller);
  check_sizes(p.out_bias, {out}, "out_bias", caller);
  check(upsample >= 1 && upsample <= 1024, "{}: upsample must be from 1 to 1024, got {}", caller,
        upsample);
  check(upsample == 1 || queries == upsample * upsample,
        "{}: up-sampling by {} needs {} queries, got {}", caller, upsample, upsample * upsample,
        queries);
  const WindowShape shape = make_shape(x.size(0), x.size(1), x.size(2), queries, heads, dim,
                                       geometry, upsample > 1, caller);
  check_sizes(p.bias, {shape.kernel_h, shape.kernel_w, queries, heads}, "bias", caller);
  check_sizes(p.tap_weights, {shape.kernel_h, shape.kernel_w, queries, heads}, "tap_weights",
              caller);
  return shape;
}

void check_branch(const Tensor& x, const Branch& branch, const WindowShape& s, int64_t out,
                  const char* caller) {
  check_float32(x, "x", caller);
  check_float32(branch.drop_factor, "drop_factor", caller);
  check_sizes(branch.drop_factor, {x.size(0)}, "drop_factor", caller);
  const bool same = s.out_height() == s.height && s.out_width() == s.width && out == x.size(3);
  if (branch.residual && !same) {
    fail("{}: x, {}, cannot be added to {} x {} x {} outputs", caller, in_brackets(sizes_of(x)),
         s.out_height(), s.out_width(), out);
  }
}

std::array<int64_t, 4> saved_sizes(const WindowShape& s) {
  return {s.batch, s.height, s.width, s.features() + s.scores()};
}

// `saves` says whether the second tensor is filled.
Tensors2 forward(const Tensor& x, const Layer& p, const OptionalTensor& mask_in,
                 const Geometry& geometry, int64_t upsample, const Branch* branch, bool saves,
                 const char* caller) {
  const WindowShape s = check_layer(x, p, geometry, upsample, caller);
  const int64_t out_features = p.out_weight.size(2);
  if (branch != nullptr) check_branch(x, *branch, s, out_features, caller);
  const OptionalTensor mask = check_mask(mask_in, sizes_of(x).first(3), caller);
  const Tensor input = as_contiguous(x);
  const OptionalTensor score_weight = as_table(p.score_weight),
                       value_weight = as_table(p.value_weight), value_bias = as_table(p.value_bias),
                       out_weight = as_table(p.out_weight), out_bias = as_table(p.out_bias),
                       bias = as_table(p.bias), tap_weights = as_table(p.tap_weights),
                       drop_factor =
                           branch == nullptr ? std::nullopt : as_table(branch->drop_factor);
  const ScalarType type = map_type(x);
  const Tensor y =
      empty({s.batch, s.out_height() * upsample, s.out_width() * upsample, out_features}, type);
  const Tensor saved = saves ? table(saved_sizes(s)) : y;
  TorchRuntime runtime;
  dispatch_type(type, [&](auto zero) {
    using T = decltype(zero);
    kernels::QnALayerArgs<T> args{.shape = s,
                                  .in_features = x.size(3),
                                  .out_features = out_features,
                                  .upsample = upsample,
                                  .x = pointer<const T>(input),
                                  .score_weight = table_pointer(score_weight),
                                  .value_weight = table_pointer(value_weight),
                                  .value_bias = table_pointer(value_bias),
                                  .out_weight = table_pointer(out_weight),
                                  .out_bias = table_pointer(out_bias),
                                  .bias = table_pointer(bias),
                                  .tap_weights = table_pointer(tap_weights),
                                  .mask = mask_pointer(mask),
                                  .y = pointer<T>(y),
                                  .saved = saves ? pointer<float>(saved) : nullptr};
    if constexpr (std::is_same_v<T, float>) {
      if (branch != nullptr) {
        args.norm = {.wanted = true, .epsilon = static_cast<float>(branch->epsilon)};
        args.residual = branch->residual ? args.x : nullptr;
        args.drop_factor = table_pointer(drop_factor);
      }
    }
    kernels::qna_layer_forward<T>(args, runtime);
  });
  return {y, saved};
}

struct Wanted {
  bool x, value_bias, out_bias;
};

Tensors8 backward(const Tensor& grad_y, const Tensor& x, const Tensor& saved, const Layer& p,
                  const OptionalTensor& mask_in, const Geometry& geometry, int64_t upsample,
                  const Branch* branch, const Wanted& wanted, const char* caller) {
  const WindowShape s = check_layer(x, p, geometry, upsample, caller);
  const int64_t in_features = x.size(3), out_features = p.out_weight.size(2);
  if (branch != nullptr) check_branch(x, *branch, s, out_features, caller);
  check_sizes(grad_y, {s.batch, s.out_height() * upsample, s.out_width() * upsample, out_features},
              "grad_y", caller);
  check_sizes(saved, {s.batch, s.height, s.width, s.features() + s.scores()}, "saved", caller);
  check_float32(saved, "saved", caller);
  const OptionalTensor mask = check_mask(mask_in, sizes_of(x).first(3), caller);
  const ScalarType type = map_type(x);
  const Tensor input = as_contiguous(x), grad = as_contiguous(as_type(grad_y, type)),
               kept = as_contiguous(saved);
  const OptionalTensor score_weight = as_table(p.score_weight),
                       value_weight = as_table(p.value_weight), out_weight = as_table(p.out_weight),
                       bias = as_table(p.bias), tap_weights = as_table(p.tap_weights),
                       drop_factor =
                           branch == nullptr ? std::nullopt : as_table(branch->drop_factor);
  const Tensor grad_x = wanted.x ? empty(sizes_of(x), type) : table({0});
  const Tensor grad_score_weight = table(sizes_of(p.score_weight));
  const Tensor grad_value_weight = table(sizes_of(p.value_weight));
  const Tensor grad_value_bias = table({s.heads, s.head_dim}, wanted.value_bias);
  const Tensor grad_out_weight = table(sizes_of(p.out_weight));
  const Tensor grad_out_bias = table({out_features}, wanted.out_bias);
  const Tensor grad_bias = table({s.kernel_h, s.kernel_w, s.queries, s.heads});
  const Tensor grad_tap_weights = table({s.kernel_h, s.kernel_w, s.queries, s.heads});
  TorchRuntime runtime;
  dispatch_type(type, [&](auto zero) {
    using T = decltype(zero);
    kernels::QnALayerBackwardArgs<T> args{.shape = s,
                                          .in_features = in_features,
                                          .out_features = out_features,
                                          .upsample = upsample,
                                          .grad_y = pointer<const T>(grad),
                                          .x = pointer<const T>(input),
                                          .saved = pointer<const float>(kept),
                                          .score_weight = table_pointer(score_weight),
                                          .value_weight = table_pointer(value_weight),
                                          .out_weight = table_pointer(out_weight),
                                          .bias = table_pointer(bias),
                                          .tap_weights = table_pointer(tap_weights),
                                          .mask = mask_pointer(mask),
                                          .grad_x = wanted.x ? pointer<T>(grad_x) : nullptr,
                                          .grad_score_weight = pointer<float>(grad_score_weight),
                                          .grad_value_weight = pointer<float>(grad_value_weight),
                                          .grad_value_bias = wanted_pointer(grad_value_bias),
                                          .grad_out_weight = pointer<float>(grad_out_weight),
                                          .grad_out_bias = wanted_pointer(grad_out_bias),
                                          .grad_bias = pointer<float>(grad_bias),
                                          .grad_tap_weights = pointer<float>(grad_tap_weights)};
    if (branch != nullptr) {
      args.norm = {.wanted = true, .epsilon = static_cast<float>(branch->epsilon)};
      args.drop_factor = table_pointer(drop_factor);
      args.residual_is_x = branch->residual;
    }
    kernels::qna_layer_backward<T>(args, runtime);
  });
  return {grad_x,          grad_score_weight, grad_value_weight, grad_value_bias,
          grad_out_weight, grad_out_bias,     grad_bias,         grad_tap_weights};
}

}  // namespace

Tensor qna_layer(Tensor x, Tensor score_weight, Tensor value_weight, OptionalTensor value_bias,
                 Tensor out_weight, OptionalTensor out_bias, OptionalTensor bias,
                 OptionalTensor tap_weights, OptionalTensor mask, Integers kernel_size,
                 Integers stride, Integers padding, Integers dilation, int64_t upsample) {
  const char* caller = "qna::qna_layer";
  return std::get<0>(
      forward(x, {score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights},
              mask, make_geometry(kernel_size, stride, padding, dilation, caller), upsample,
              nullptr, false, caller));
}

Tensors2 qna_layer_saving(Tensor x, Tensor score_weight, Tensor value_weight,
                          OptionalTensor value_bias, Tensor out_weight, OptionalTensor out_bias,
                          OptionalTensor bias, OptionalTensor tap_weights, OptionalTensor mask,
                          Integers kernel_size, Integers stride, Integers padding,
                          Integers dilation, int64_t upsample) {
  const char* caller = "qna::qna_layer_saving";
  return forward(x,
                 {score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights},
                 mask, make_geometry(kernel_size, stride, padding, dilation, caller), upsample,
                 nullptr, true, caller);
}

Tensors8 qna_layer_backward(Tensor grad_y, Tensor x, Tensor saved, Tensor score_weight,
                            Tensor value_weight, Tensor out_weight, OptionalTensor bias,
                            OptionalTensor tap_weights, OptionalTensor mask, Integers kernel_size,
                            Integers stride, Integers padding, Integers dilation, int64_t upsample,
                            bool wants_x, bool wants_value_bias, bool wants_out_bias) {
  const char* caller = "qna::qna_layer_backward";
  return backward(
      grad_y, x, saved,
      {score_weight, value_weight, std::nullopt, out_weight, std::nullopt, bias, tap_weights}, mask,
      make_geometry(kernel_size, stride, padding, dilation, caller), upsample, nullptr,
      {wants_x, wants_value_bias, wants_out_bias}, caller);
}

Tensor qna_layer_branch(Tensor x, Tensor score_weight, Tensor value_weight,
                        OptionalTensor value_bias, Tensor out_weight, OptionalTensor out_bias,
                        OptionalTensor bias, OptionalTensor tap_weights, OptionalTensor mask,
                        Integers kernel_size, Integers stride, Integers padding, Integers dilation,
                        double epsilon, OptionalTensor drop_factor, bool residual) {
  const char* caller = "qna::qna_layer_branch";
  const Branch branch{epsilon, drop_factor, residual};
  return std::get<0>(forward(
      x, {score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights}, mask,
      make_geometry(kernel_size, stride, padding, dilation, caller), 1, &branch, false, caller));
}

Tensors2 qna_layer_branch_saving(Tensor x, Tensor score_weight, Tensor value_weight,
                                 OptionalTensor value_bias, Tensor out_weight,
                                 OptionalTensor out_bias, OptionalTensor bias,
                                 OptionalTensor tap_weights, OptionalTensor mask,
                                 Integers kernel_size, Integers stride, Integers padding,
                                 Integers dilation, double epsilon, OptionalTensor drop_factor,
                                 bool residual) {
  const char* caller = "qna::qna_layer_branch_saving";
  const Branch branch{epsilon, drop_factor, residual};
  return forward(
      x, {score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights}, mask,
      make_geometry(kernel_size, stride, padding, dilation, caller), 1, &branch, true, caller);
}

Tensors8 qna_layer_branch_backward(Tensor grad_y, Tensor x, Tensor saved, Tensor score_weight,
                                   Tensor value_weight, Tensor out_weight, OptionalTensor bias,
                                   OptionalTensor tap_weights, OptionalTensor mask,
                                   Integers kernel_size, Integers stride, Integers padding,
                                   Integers dilation, double epsilon, OptionalTensor drop_factor,
                                   bool residual, bool wants_x, bool wants_value_bias,
                                   bool wants_out_bias) {
  const char* caller = "qna::qna_layer_branch_backward";
  const Branch branch{epsilon, drop_factor, residual};
  return backward(
      grad_y, x, saved,
      {score_weight, value_weight, std::nullopt, out_weight, std::nullopt, bias, tap_weights}, mask,
      make_geometry(kernel_size, stride, padding, dilation, caller), 1, &branch,
      {wants_x, wants_value_bias, wants_out_bias}, caller);
}

}  // namespace qna::python
