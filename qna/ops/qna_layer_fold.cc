#include "qna/ops/qna_layer_fold.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <array>
#include <cmath>

#include "qna/kernels/qna_layer_fold.h"
#include "qna/ops/autograd.h"
#include "qna/ops/fused.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using torch::autograd::AutogradContext;

// The tensors as contiguous arrays, held while a kernel runs.
struct FoldArrays {
  FoldArrays(const variable_list& tensors, int64_t heads, bool normalize, bool stop_gradient) {
    for (const at::Tensor& tensor : tensors) {
      arrays.push_back(tensor.defined() ? tensor.contiguous() : at::Tensor());
    }
    const auto data = [&](int i) {
      return arrays[i].defined() ? arrays[i].const_data_ptr<float>() : nullptr;
    };
    in = {.in_features = arrays[1].size(0),
          .queries = arrays[0].size(0),
          .heads = heads,
          .head_dim = arrays[1].size(1) / heads,
          .normalize = normalize,
          .stop_gradient = stop_gradient,
          .query = data(0),
          .key_weight = data(1),
          .value_weight = data(2),
          .value_bias = data(3),
          .norm_scale = data(4),
          .norm_shift = data(5)};
  }
  variable_list arrays;
  kernels::QnALayerFold<float> in;
};

struct Fold : torch::autograd::Function<Fold> {
  // {score_weight} or, with a norm, {score_weight, value_weight, value_bias}
  static variable_list forward(AutogradContext* context, const at::Tensor& query,
                               const at::Tensor& key_weight, const at::Tensor& value_weight,
                               const OptionalTensor& value_bias, const OptionalTensor& norm_scale,
                               const OptionalTensor& norm_shift, const OptionalTensor& key_bias,
                               int64_t heads, bool normalize, bool stop_gradient) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const variable_list inputs = {query,
                                  key_weight,
                                  value_weight,
                                  or_undefined(value_bias),
                                  or_undefined(norm_scale),
                                  or_undefined(norm_shift),
                                  or_undefined(key_bias)};
    const FoldArrays arrays(inputs, heads, normalize, stop_gradient);
    const auto& in = arrays.in;
    variable_list out = {at::empty({in.in_features, in.queries, heads}, query.options())};
    if (norm_scale.has_value()) {
      out.push_back(at::empty({in.in_features, heads, in.head_dim}, query.options()));
      out.push_back(at::empty({heads, in.head_dim}, query.options()));
    }
    const auto data = [&](size_t i) { return i < out.size() ? out[i].data_ptr<float>() : nullptr; };
    TorchRuntime runtime;
    kernels::fold_qna_layer<float>({in, data(0), data(1), data(2)}, runtime);
    context->save_for_backward(inputs);
    context->saved_data["heads"] = heads;
    context->saved_data["normalize"] = normalize;
    context->saved_data["stop_gradient"] = stop_gradient;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const int64_t heads = context->saved_data["heads"].toInt();
    const bool normalize = context->saved_data["normalize"].toBool();
    const bool stop_gradient = context->saved_data["stop_gradient"].toBool();
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      gradients = differentiable_gradients(saved, grad_outputs, [&](const variable_list& in) {
        const QnALayerParameters p = fold_qna_layer_composite({.query = in[0],
                                                               .key_weight = in[1],
                                                               .key_bias = or_nothing(in[6]),
                                                               .value_weight = in[2],
                                                               .value_bias = or_nothing(in[3]),
                                                               .norm_scale = or_nothing(in[4]),
                                                               .norm_shift = or_nothing(in[5]),
                                                               .heads = heads,
                                                               .normalize = normalize,
                                                               .stop_gradient = stop_gradient});
        variable_list out = {p.score_weight};
        if (in[4].defined()) out.insert(out.end(), {p.value_weight, *p.value_bias});
        return out;
      });
    } else {
      const FoldArrays arrays(saved, heads, normalize, stop_gradient);
      variable_list grads;
      for (const at::Tensor& grad : grad_outputs) grads.push_back(grad.contiguous());
      const bool norm = saved[4].defined();
      for (size_t i = 0; i < saved.size(); ++i) {
        const bool wanted = i < 2 || (norm && (i == 2 || i == 4 || i == 5));
        gradients.push_back(wanted ? at::empty(saved[i].sizes(), saved[0].options())
                                   : at::Tensor());
      }
      const auto grad = [&](size_t i) {
        return i < grads.size() ? grads[i].const_data_ptr<float>() : nullptr;
      };
      const auto data = [&](int i) {
        return gradients[i].defined() ? gradients[i].data_ptr<float>() : nullptr;
      };
      TorchRuntime runtime;
      kernels::fold_qna_layer_backward<float>({.in = arrays.in,
                                               .grad_score_weight = grad(0),
                                               .grad_value_weight = grad(1),
                                               .grad_value_bias = grad(2),
                                               .grad_query = data(0),
                                               .grad_key_weight = data(1),
                                               .grad_in_value_weight = data(2),
                                               .grad_norm_scale = data(4),
                                               .grad_norm_shift = data(5)},
                                              runtime);
      if (norm && saved[3].defined()) gradients[3] = grads[2].view(saved[3].sizes());
      if (saved[6].defined()) gradients[6] = at::zeros_like(saved[6]);
    }
    gradients.resize(10);  // none for heads, normalize and stop_gradient
    return gradients;
  }
};

}  // namespace

QnALayerParameters fold_qna_layer_composite(const QnALayerWeights& w) {
  const int64_t dim = w.key_weight.size(1) / w.heads;
  const auto by_head = [&](const at::Tensor& weight) {
    return weight.unflatten(-1, {w.heads, dim});
  };
  at::Tensor q = by_head(w.query);
  if (w.normalize) {
    at::Tensor length = q.norm(2, -1, /*keepdim=*/true);
    if (w.stop_gradient) length = length.detach();
    q = q / (length + 1e-6);
  }
  QnALayerParameters p;
  p.score_weight = at::einsum("chd,lhd->clh", {by_head(w.key_weight), q / std::sqrt(double(dim))});
  if (w.key_bias.has_value()) p.score_weight = p.score_weight + 0 * w.key_bias->sum();
  p.value_weight = by_head(w.value_weight);
  if (w.value_bias.has_value()) p.value_bias = by_head(*w.value_bias);
  if (!w.norm_scale.has_value()) return p;
  const at::Tensor shift = at::einsum("c,chd->hd", {*w.norm_shift, p.value_weight});
  p.value_bias = p.value_bias.has_value() ? *p.value_bias + shift : shift;
  p.value_weight = p.value_weight * w.norm_scale->view({-1, 1, 1});
  p.score_weight = p.score_weight * w.norm_scale->view({-1, 1, 1});
  return p;
}

QnALayerParameters fold_qna_layer(const QnALayerWeights& w) {
  // Small products on parameters: always at the parameters' precision.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (!is_fused(OperatorClass::kBranch, {w.query, w.key_weight, w.value_weight, w.value_bias,
                                         w.norm_scale, w.norm_shift})) {
    return fold_qna_layer_composite(w);
  }
  const variable_list out =
      Fold::apply(w.query, w.key_weight, w.value_weight, w.value_bias, w.norm_scale, w.norm_shift,
                  w.key_bias, w.heads, w.normalize, w.stop_gradient);
  QnALayerParameters p;
  p.score_weight = out[0];
  if (w.norm_scale.has_value()) {
    p.value_weight = out[1];
    p.value_bias = out[2];
    return p;
  }
  const std::array<int64_t, 2> by_head = {w.heads, w.key_weight.size(1) / w.heads};
  p.value_weight = w.value_weight.unflatten(1, by_head);
  if (w.value_bias.has_value()) p.value_bias = w.value_bias->view(by_head);
  return p;
}

}  // namespace qna::ops
