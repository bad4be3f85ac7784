#include "qna/ops/layer_autograd.h"

#include <ATen/ATen.h>

#include "qna/kernels/window_attention.h"
#include "qna/ops/autograd.h"
#include "qna/ops/composite.h"
#include "qna/ops/row_products.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using kernels::WindowShape;
using torch::autograd::AutogradContext;

// Heads become the fast index of values, by permuting the small weights: the kernels then read maps
// as they lie. The values and scores of a pixel are one row, the result of one product.
struct TrainingWeights {
  TrainingWeights(const LayerParameters& p, const WindowShape& s)
      : in(at::cat({p.value_weight.to(at::kFloat).transpose(1, 2).flatten(1),
                    p.score_weight.to(at::kFloat).flatten(1)},
                   1)),  // [in features, dim x heads | L x heads]
        out(p.out_weight.to(at::kFloat).transpose(0, 1).flatten(0, 1)) {  // [dim x heads, out]
    if (p.value_bias.has_value()) {
      in_bias = at::cat({p.value_bias->to(at::kFloat).t().flatten(),
                         at::zeros({s.scores()}, in.options())});
    }
    if (p.out_bias.has_value()) out_bias = p.out_bias->to(at::kFloat);
  }
  at::Tensor in;
  at::Tensor out;
  std::optional<at::Tensor> in_bias;
  std::optional<at::Tensor> out_bias;
};

// A pixel's row in the map of values and scores.
kernels::ValueLayout row_layout(const WindowShape& s) {
  return {s.features() + s.scores(), 1, s.heads};
}

at::Tensor values_and_scores(const at::Tensor& x, const TrainingWeights& weights) {
  return rows_times(x.to(at::kFloat).flatten(0, 2), weights.in, weights.in_bias);
}

// z [windows (x queries), dim x heads]
at::Tensor attend(const at::Tensor& rows, const LayerParameters& p, const OptionalTensor& mask,
                  const WindowShape& s) {
  const OptionalTensor bias = as_table(p.bias);
  const OptionalTensor tap_weights = as_table(p.tap_weights);
  const at::Tensor z = at::empty(
      {s.batch * s.out_height() * s.out_width() * s.outputs(), s.features()}, rows.options());
  TorchRuntime runtime;
  kernels::window_attention_forward<float>({.shape = s,
                                            .scores = pointer<const float>(rows) + s.features(),
                                            .score_stride = rows.size(1),
                                            .values = pointer<const float>(rows),
                                            .value_layout = row_layout(s),
                                            .bias = table_pointer(bias),
                                            .tap_weights = table_pointer(tap_weights),
                                            .mask = mask_pointer(mask),
                                            .out = pointer<float>(z),
                                            .out_layout = {s.features(), 1, s.heads}},
                                           runtime);
  return z;
}

struct AttendGradients {
  at::Tensor rows;  // like values_and_scores
  at::Tensor bias, tap_weights;
};

AttendGradients attend_backward(const at::Tensor& grad_z, const at::Tensor& rows,
                                const LayerParameters& p, const OptionalTensor& mask,
                                const WindowShape& s) {
  const OptionalTensor bias = as_table(p.bias);
  const OptionalTensor tap_weights = as_table(p.tap_weights);
  const std::vector<int64_t> table = {s.kernel_h, s.kernel_w, s.queries, s.heads};
  const AttendGradients grads{at::empty(rows.sizes(), rows.options()),
                              at::empty(table, rows.options()), at::empty(table, rows.options())};
  TorchRuntime runtime;
  kernels::window_attention_backward<float>(
      {.shape = s,
       .grad_out = pointer<const float>(grad_z),
       .out_layout = {s.features(), 1, s.heads},
       .scores = pointer<const float>(rows) + s.features(),
       .score_stride = rows.size(1),
       .values = pointer<const float>(rows),
       .value_layout = row_layout(s),
       .bias = table_pointer(bias),
       .tap_weights = table_pointer(tap_weights),
       .mask = mask_pointer(mask),
       .grad_scores = pointer<float>(grads.rows) + s.features(),
       .grad_score_stride = rows.size(1),
       .grad_values = pointer<float>(grads.rows),
       .grad_value_layout = row_layout(s),
       .grad_bias = pointer<float>(grads.bias),
       .grad_tap_weights = pointer<float>(grads.tap_weights)},
      runtime);
  return grads;
}

struct Layer : torch::autograd::Function<Layer> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& score_weight, const at::Tensor& value_weight,
                            const OptionalTensor& value_bias, const at::Tensor& out_weight,
                            const OptionalTensor& out_bias, const OptionalTensor& bias,
                            const OptionalTensor& tap_weights, const OptionalTensor& mask,
                            const WindowGeometry& geometry, int64_t upsample) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const LayerParameters p{score_weight, value_weight, value_bias, out_weight,
                            out_bias,     bias,         tap_weights};
    const WindowShape s = layer_shape(x, p, mask, geometry, upsample);
    const TrainingWeights weights(p, s);
    at::Tensor z = attend(values_and_scores(x, weights), p, mask, s);
    at::Tensor y = rows_times(z, weights.out, weights.out_bias);
    y = y.view({s.batch, s.out_height(), s.out_width(), s.outputs(), y.size(1)});
    context->save_for_backward({x, score_weight, value_weight, or_undefined(value_bias), out_weight,
                                or_undefined(out_bias), or_undefined(bias),
                                or_undefined(tap_weights), or_undefined(mask),
                                z.to(x.scalar_type())});
    context->saved_data["geometry"] = geometry_to_list(geometry);
    context->saved_data["upsample"] = upsample;
    return spread_queries(y, upsample).to(x.scalar_type()).contiguous();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const LayerParameters p{saved[1], saved[2],           or_nothing(saved[3]),
                            saved[4], or_nothing(saved[5]), or_nothing(saved[6]),
                            or_nothing(saved[7])};
    const OptionalTensor mask = or_nothing(saved[8]);
    const int64_t upsample = context->saved_data["upsample"].toInt();
    const WindowShape s =
        layer_shape(x, p, mask, geometry_from_list(context->saved_data["geometry"].toIntVector()),
                    upsample);
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      const variable_list inputs(saved.begin(), saved.begin() + 8);
      gradients = differentiable_gradients(inputs, grad_outputs[0], [&] {
        return layer_composite(x, p.score_weight, p.value_weight, p.value_bias, p.out_weight,
                               p.out_bias, p.bias, p.tap_weights, mask, s, upsample);
      });
    } else {
      gradients = fused_gradients(grad_outputs[0], saved, p, mask, s, upsample);
    }
    gradients.resize(11);  // none for mask, geometry and upsample
    return gradients;
  }

  static variable_list fused_gradients(const at::Tensor& grad_out, const variable_list& saved,
                                       const LayerParameters& p, const OptionalTensor& mask,
                                       const WindowShape& s, int64_t upsample) {
    const at::Tensor& x = saved[0];
    const at::Tensor z = saved[9].to(at::kFloat);
    const TrainingWeights weights(p, s);
    const at::Tensor grad_y =
        gather_queries(grad_out.to(at::kFloat), upsample).contiguous().flatten(0, 3);
    const at::Tensor grad_z = rows_times(grad_y, weights.out.t());
    const at::Tensor grad_out_weight = transposed_times(z, grad_y);  // [dim x heads, out]
    const AttendGradients grads =
        attend_backward(grad_z, values_and_scores(x, weights), p, mask, s);
    const at::Tensor grad_in = transposed_times(x.to(at::kFloat).flatten(0, 2), grads.rows);

    // Back from heads as the fast index.
    const auto split = grad_in.split_with_sizes({s.features(), s.scores()}, 1);
    const at::Tensor grad_value_weight =
        split[0].unflatten(1, {s.head_dim, s.heads}).transpose(1, 2);
    variable_list gradients(8);
    if (x.requires_grad()) {
      gradients[0] = gradient_for(x, rows_times(grads.rows, weights.in.t()));
    }
    gradients[1] = gradient_for(saved[1], split[1]);
    gradients[2] = gradient_for(saved[2], grad_value_weight);
    if (saved[3].defined()) {
      const at::Tensor sum = sum_rows(grads.rows.narrow(1, 0, s.features()));
      gradients[3] = gradient_for(saved[3], sum.view({s.head_dim, s.heads}).t());
    }
    gradients[4] = gradient_for(
        saved[4], grad_out_weight.unflatten(0, {s.head_dim, s.heads}).transpose(0, 1));
    if (saved[5].defined()) gradients[5] = gradient_for(saved[5], sum_rows(grad_y));
    gradients[6] = gradient_for(saved[6], grads.bias);
    gradients[7] = gradient_for(saved[7], grads.tap_weights);
    return gradients;
  }
};

}  // namespace

at::Tensor layer_with_gradient(const at::Tensor& x, const LayerParameters& p,
                               const OptionalTensor& mask, const WindowGeometry& geometry,
                               int64_t upsample) {
  return Layer::apply(x, p.score_weight, p.value_weight, p.value_bias, p.out_weight, p.out_bias,
                      p.bias, p.tap_weights, mask, geometry, upsample);
}

}  // namespace qna::ops
