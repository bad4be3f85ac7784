#include "qna/ops/qna_layer_autograd.h"

#include <ATen/ATen.h>

#include "qna/kernels/qna_layer.h"
#include "qna/ops/autograd.h"
#include "qna/ops/composite.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using kernels::WindowShape;
using torch::autograd::AutogradContext;

// What stands around the layer: see QnALayerBranch. Its parts as autograd keeps them.
struct Around {
  bool is_branch;
  bool residual;
  double epsilon;
  OptionalTensor drop_factor;

  std::optional<QnALayerBranch> branch() const {
    if (!is_branch) return std::nullopt;
    return QnALayerBranch{.epsilon = epsilon, .drop_factor = drop_factor, .residual = residual};
  }
};

struct QnALayer : torch::autograd::Function<QnALayer> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& score_weight, const at::Tensor& value_weight,
                            const OptionalTensor& value_bias, const at::Tensor& out_weight,
                            const OptionalTensor& out_bias, const OptionalTensor& bias,
                            const OptionalTensor& tap_weights, const OptionalTensor& mask,
                            const WindowGeometry& geometry, int64_t upsample,
                            const OptionalTensor& drop_factor, bool is_branch, bool residual,
                            double epsilon) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const QnALayerParameters p{score_weight, value_weight, value_bias, out_weight,
                               out_bias,     bias,         tap_weights};
    const WindowShape s = qna_layer_shape(x, p, mask, geometry, upsample);
    const at::Tensor saved_map = at::empty({s.batch, s.height, s.width, s.features() + s.scores()},
                                           x.options().dtype(at::kFloat));
    const std::optional<QnALayerBranch> branch =
        Around{is_branch, residual, epsilon, drop_factor}.branch();
    at::Tensor y = qna_layer_fused(x, p, mask, s, upsample, saved_map,
                                   branch.has_value() ? &*branch : nullptr);
    context->save_for_backward({x, score_weight, value_weight, or_undefined(value_bias), out_weight,
                                or_undefined(out_bias), or_undefined(bias),
                                or_undefined(tap_weights), or_undefined(mask), saved_map,
                                or_undefined(drop_factor)});
    context->saved_data["geometry"] = geometry_to_list(geometry);
    context->saved_data["upsample"] = upsample;
    context->saved_data["is_branch"] = is_branch;
    context->saved_data["residual"] = residual;
    context->saved_data["epsilon"] = epsilon;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const QnALayerParameters p{saved[1],
                               saved[2],
                               or_nothing(saved[3]),
                               saved[4],
                               or_nothing(saved[5]),
                               or_nothing(saved[6]),
                               or_nothing(saved[7])};
    const OptionalTensor mask = or_nothing(saved[8]);
    const int64_t upsample = context->saved_data["upsample"].toInt();
    const WindowShape s = qna_layer_shape(
        x, p, mask, geometry_from_list(context->saved_data["geometry"].toIntVector()), upsample);
    const std::optional<QnALayerBranch> branch =
        Around{context->saved_data["is_branch"].toBool(), context->saved_data["residual"].toBool(),
               context->saved_data["epsilon"].toDouble(), or_nothing(saved[10])}
            .branch();
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      const variable_list inputs(saved.begin(), saved.begin() + 8);
      gradients = differentiable_gradients(inputs, grad_outputs[0], [&](const variable_list& in) {
        const at::Tensor input =
            branch.has_value() ? at::layer_norm(in[0], {in[0].size(3)}, {}, {}, branch->epsilon)
                               : in[0];
        at::Tensor y =
            qna_layer_composite(input, in[1], in[2], or_nothing(in[3]), in[4], or_nothing(in[5]),
                                or_nothing(in[6]), or_nothing(in[7]), mask, s, upsample);
        if (branch.has_value() && branch->drop_factor.has_value()) {
          y = y * branch->drop_factor->view({-1, 1, 1, 1});
        }
        return branch.has_value() && branch->residual ? in[0] + y : y;
      });
    } else {
      gradients = fused_gradients(grad_outputs[0], x, p, mask, saved[9], s, upsample,
                                  branch.has_value() ? &*branch : nullptr);
    }
    gradients.resize(15);  // none for mask, geometry, upsample and what stands around
    return gradients;
  }

  static variable_list fused_gradients(const at::Tensor& grad_out, const at::Tensor& x,
                                       const QnALayerParameters& p, const OptionalTensor& mask,
                                       const at::Tensor& saved_map, const WindowShape& s,
                                       int64_t upsample, const QnALayerBranch* branch) {
    const at::Tensor input = x.contiguous();
    const at::Tensor grad_y = grad_out.to(x.scalar_type()).contiguous();
    const OptionalTensor score_weight = as_table(p.score_weight);
    const OptionalTensor value_weight = as_table(p.value_weight);
    const OptionalTensor out_weight = as_table(p.out_weight);
    const OptionalTensor bias = as_table(p.bias);
    const OptionalTensor tap_weights = as_table(p.tap_weights);
    const auto table = [&](at::IntArrayRef sizes) {
      return at::empty(sizes, x.options().dtype(at::kFloat));
    };
    const int64_t taps[] = {s.kernel_h, s.kernel_w, s.queries, s.heads};
    const at::Tensor grad_x =
        x.requires_grad() ? at::empty(x.sizes(), input.options()) : at::Tensor();
    const at::Tensor grad_score = table(p.score_weight.sizes());
    const at::Tensor grad_value = table(p.value_weight.sizes());
    const at::Tensor grad_out_weight = table(p.out_weight.sizes());
    const at::Tensor grad_value_bias =
        p.value_bias.has_value() ? table(p.value_bias->sizes()) : at::Tensor();
    const at::Tensor grad_out_bias =
        p.out_bias.has_value() ? table(p.out_bias->sizes()) : at::Tensor();
    const at::Tensor grad_bias = table(taps);
    const at::Tensor grad_tap_weights = table(taps);
    const auto data = [](const at::Tensor& t) {
      return t.defined() ? t.data_ptr<float>() : nullptr;
    };
    const OptionalTensor drop_factor =
        branch == nullptr ? std::nullopt : as_table(branch->drop_factor);
    TorchRuntime runtime;
    dispatch_type(x.scalar_type(), [&](auto type) {
      using T = decltype(type);
      kernels::QnALayerBackwardArgs<T> args{
          .shape = s,
          .in_features = x.size(3),
          .out_features = p.out_weight.size(2),
          .upsample = upsample,
          .grad_y = pointer<const T>(grad_y),
          .x = pointer<const T>(input),
          .saved = pointer<const float>(saved_map),
          .score_weight = table_pointer(score_weight),
          .value_weight = table_pointer(value_weight),
          .out_weight = table_pointer(out_weight),
          .bias = table_pointer(bias),
          .tap_weights = table_pointer(tap_weights),
          .mask = mask_pointer(mask),
          .grad_x = grad_x.defined() ? pointer<T>(grad_x) : nullptr,
          .grad_score_weight = data(grad_score),
          .grad_value_weight = data(grad_value),
          .grad_value_bias = data(grad_value_bias),
          .grad_out_weight = data(grad_out_weight),
          .grad_out_bias = data(grad_out_bias),
          .grad_bias = data(grad_bias),
          .grad_tap_weights = data(grad_tap_weights)};
      if (branch != nullptr) {
        args.norm = {.wanted = true, .epsilon = static_cast<float>(branch->epsilon)};
        args.drop_factor = table_pointer(drop_factor);
        args.residual_is_x = branch->residual;
      }
      kernels::qna_layer_backward<T>(args, runtime);
    });
    return {grad_x,
            gradient_for(p.score_weight, grad_score),
            gradient_for(p.value_weight, grad_value),
            gradient_for(or_undefined(p.value_bias), grad_value_bias),
            gradient_for(p.out_weight, grad_out_weight),
            gradient_for(or_undefined(p.out_bias), grad_out_bias),
            gradient_for(or_undefined(p.bias), grad_bias),
            gradient_for(or_undefined(p.tap_weights), grad_tap_weights)};
  }
};

}  // namespace

at::Tensor qna_layer_with_gradient(const at::Tensor& x, const QnALayerParameters& p,
                                   const OptionalTensor& mask, const WindowGeometry& geometry,
                                   int64_t upsample, const QnALayerBranch* branch) {
  const QnALayerBranch around = branch == nullptr ? QnALayerBranch{} : *branch;
  return QnALayer::apply(x, p.score_weight, p.value_weight, p.value_bias, p.out_weight, p.out_bias,
                         p.bias, p.tap_weights, mask, geometry, upsample, around.drop_factor,
                         branch != nullptr, around.residual, around.epsilon);
}

}  // namespace qna::ops
