#include "qna/ops/qna_layer.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "qna/base/error.h"
#include "qna/kernels/qna_layer.h"
#include "qna/ops/autograd.h"
#include "qna/ops/composite.h"
#include "qna/ops/fused.h"
#include "qna/ops/qna_layer_autograd.h"
#include "qna/ops/qna_layer_tables.h"
#include "qna/ops/registration.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using kernels::WindowShape;

constexpr const char* kName = "qna::qna_layer";

at::Tensor forward_composite(const at::Tensor& x, const QnALayerParameters& p,
                             const OptionalTensor& mask, const WindowShape& shape,
                             int64_t upsample) {
  return qna_layer_composite(x, p.score_weight, p.value_weight, p.value_bias, p.out_weight,
                             p.out_bias, p.bias, p.tap_weights, mask, shape, upsample);
}

at::Tensor empty_output(const at::Tensor& x, const QnALayerParameters& p, const WindowShape& shape,
                        int64_t upsample) {
  return at::empty({shape.batch, shape.out_height() * upsample, shape.out_width() * upsample,
                    p.out_weight.size(2)},
                   x.options());
}

at::Tensor forward_cpu(const at::Tensor& x, const QnALayerParameters& p, const OptionalTensor& mask,
                       const WindowGeometry& geometry, int64_t upsample) {
  const WindowShape shape = qna_layer_shape(x, p, mask, geometry, upsample);
  const OptionalTensor taking_part = check_mask(mask, shape, kName);
  if (!is_fused(OperatorClass::kMap, {x}))
    return forward_composite(x, p, taking_part, shape, upsample);
  return qna_layer_fused(x, p, taking_part, shape, upsample);
}

at::Tensor forward_meta(const at::Tensor& x, const QnALayerParameters& p,
                        const OptionalTensor& mask, const WindowGeometry& geometry,
                        int64_t upsample) {
  const WindowShape shape = qna_layer_shape(x, p, mask, geometry, upsample);
  check_mask_type(mask, shape, kName);
  return empty_output(x, p, shape, upsample);
}

at::Tensor forward_any(const at::Tensor& x, const QnALayerParameters& p, const OptionalTensor& mask,
                       const WindowGeometry& geometry, int64_t upsample) {
  const WindowShape shape = qna_layer_shape(x, p, mask, geometry, upsample);
  return forward_composite(x, p, check_mask(mask, shape, kName), shape, upsample);
}

at::Tensor forward_autograd(const at::Tensor& x, const QnALayerParameters& p,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            int64_t upsample) {
  if (!is_fused(OperatorClass::kMap, {x})) return forward_any(x, p, mask, geometry, upsample);
  if (!wants_gradient({x, p.score_weight, p.value_weight, p.out_weight},
                      {p.value_bias, p.out_bias, p.bias, p.tap_weights})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return qna_layer(x, p, mask, geometry, upsample);
  }
  const WindowShape shape = qna_layer_shape(x, p, mask, geometry, upsample);
  return qna_layer_with_gradient(x, p, check_mask(mask, shape, kName), geometry, upsample);
}

// The map goes to the lower precision; the weights stay as they are, since the arithmetic is
// float32.
template <c10::DispatchKey kKey, c10::DeviceType kDevice>
at::Tensor forward_autocast(const at::Tensor& x, const QnALayerParameters& p,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            int64_t upsample) {
  c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  const at::ScalarType type = at::autocast::get_autocast_dtype(kDevice);
  return qna_layer(at::autocast::cached_cast(type, x, kDevice), p, mask, geometry, upsample);
}

using Implementation = at::Tensor (*)(const at::Tensor&, const QnALayerParameters&,
                                      const OptionalTensor&, const WindowGeometry&, int64_t);

// The operator's flat arguments, as the dispatcher hands them over, to the struct form.
template <Implementation kImplementation>
at::Tensor unpacked(const at::Tensor& x, const at::Tensor& score_weight,
                    const at::Tensor& value_weight, const OptionalTensor& value_bias,
                    const at::Tensor& out_weight, const OptionalTensor& out_bias,
                    const OptionalTensor& bias, const OptionalTensor& tap_weights,
                    const OptionalTensor& mask, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                    at::IntArrayRef padding, at::IntArrayRef dilation, int64_t upsample) {
  return kImplementation(
      x, {score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights}, mask,
      make_geometry(kernel_size, stride, padding, dilation, kName), upsample);
}

}  // namespace

WindowShape qna_layer_shape(const at::Tensor& x, const QnALayerParameters& p,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            int64_t upsample) {
  check_rank(x, 4, "[batch, height, width, features]", "x", kName);
  check_floating(x, "x", kName);
  check_rank(p.score_weight, 3, "[in features, queries, heads]", "score_weight", kName);
  check_rank(p.value_weight, 3, "[in features, heads, dim]", "value_weight", kName);
  check_rank(p.out_weight, 3, "[heads, dim, out features]", "out_weight", kName);
  const int64_t in = x.size(3);
  const int64_t queries = p.score_weight.size(1);
  const int64_t heads = p.value_weight.size(1);
  const int64_t dim = p.value_weight.size(2);
  check(in >= 1, "{}: x must have at least 1 feature, got {}", kName, in);
  check_sizes(p.score_weight, {in, queries, heads}, "[features of x, queries, heads]",
              "score_weight", kName);
  check_sizes(p.value_weight, {in, heads, dim}, "[features of x, heads, dim]", "value_weight",
              kName);
  check_sizes(p.out_weight, {heads, dim, p.out_weight.size(2)}, "[heads, dim, out features]",
              "out_weight", kName);
  check(p.out_weight.size(2) >= 1, "{}: out_weight must have at least 1 out feature, got 0", kName);
  check_sizes(p.value_bias, {heads, dim}, "[heads, dim]", "value_bias", kName);
  check_sizes(p.out_bias, {p.out_weight.size(2)}, "[out features]", "out_bias", kName);
  check(upsample >= 1, "{}: upsample must be at least 1, got {}", kName, upsample);
  check(upsample == 1 || (upsample <= 1024 && queries == upsample * upsample),
        "{}: up-sampling by {} needs {} x {} queries, got {}", kName, upsample, upsample, upsample,
        queries);
  const WindowShape shape = make_shape(x.size(0), x.size(1), x.size(2), queries, heads, dim,
                                       geometry, upsample > 1, kName);
  const int64_t table[] = {shape.kernel_h, shape.kernel_w, queries, heads};
  check_sizes(p.bias, table, "[kernel height, kernel width, queries, heads]", "bias", kName);
  check_sizes(p.tap_weights, table, "[kernel height, kernel width, queries, heads]", "tap_weights",
              kName);
  const std::pair<const char*, OptionalTensor> others[] = {
      {"score_weight", p.score_weight}, {"value_weight", p.value_weight},
      {"value_bias", p.value_bias},     {"out_weight", p.out_weight},
      {"out_bias", p.out_bias},         {"bias", p.bias},
      {"tap_weights", p.tap_weights},   {"mask", mask}};
  for (const auto& [name, tensor] : others) {
    check_same_device(x, tensor, "x", name, kName);
    const bool is_table = tensor.has_value() && tensor->defined() && name != std::string("mask");
    if (is_table) check_floating(*tensor, name, kName);
  }
  return shape;
}

at::Tensor qna_layer_fused(const at::Tensor& x, const QnALayerParameters& p,
                           const OptionalTensor& mask, const WindowShape& shape, int64_t upsample,
                           const at::Tensor& saved_map, const QnALayerBranch* branch) {
  const at::Tensor input = x.contiguous();
  const OptionalTensor drop_factor =
      branch == nullptr ? std::nullopt : as_table(branch->drop_factor);
  const QnALayerTables tables(p);
  const at::Tensor y = empty_output(x, p, shape, upsample);
  TorchRuntime runtime;
  dispatch_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    kernels::QnALayerArgs<T> args{};
    args.shape = shape;
    args.in_features = x.size(3);
    args.out_features = p.out_weight.size(2);
    args.upsample = upsample;
    args.x = pointer<const T>(input);
    args.mask = mask_pointer(mask);
    args.y = pointer<T>(y);
    args.saved = saved_map.defined() ? pointer<float>(saved_map) : nullptr;
    tables.point(args);
    if constexpr (std::is_same_v<T, float>) {
      if (branch != nullptr) {
        args.norm = {.wanted = true, .epsilon = static_cast<float>(branch->epsilon)};
        args.residual = branch->residual ? args.x : nullptr;
        args.drop_factor = table_pointer(drop_factor);
      }
    }
    kernels::qna_layer_forward<T>(args, runtime);
  });
  return y;
}

at::Tensor qna_layer(const at::Tensor& x, const QnALayerParameters& p, const OptionalTensor& mask,
                     const WindowGeometry& geometry, int64_t upsample) {
  register_operators();
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(kName, "")
                             .typed<decltype(unpacked<forward_cpu>)>();
  return op.call(x, p.score_weight, p.value_weight, p.value_bias, p.out_weight, p.out_bias, p.bias,
                 p.tap_weights, mask, geometry.kernel_size, geometry.stride, geometry.padding,
                 geometry.dilation, upsample);
}

at::Tensor qna_layer_branch(const at::Tensor& x, const QnALayerParameters& p,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            const QnALayerBranch& branch) {
  const WindowShape shape = qna_layer_shape(x, p, mask, geometry, /*upsample=*/1);
  const OptionalTensor taking_part = check_mask(mask, shape, kName);
  check(!branch.residual || (shape.out_height() == x.size(1) && shape.out_width() == x.size(2) &&
                             p.out_weight.size(2) == x.size(3)),
        "qna_layer_branch: x, {}, cannot be added to {} x {} x {} outputs", in_brackets(x.sizes()),
        shape.out_height(), shape.out_width(), p.out_weight.size(2));
  check_sizes(branch.drop_factor, {x.size(0)}, "[batch]", "drop_factor", "qna_layer_branch");
  const bool fused = is_fused(OperatorClass::kBranch, {x}) &&
                     !(given(branch.drop_factor) && branch.drop_factor->requires_grad());
  if (!fused) {
    const at::Tensor normed = at::layer_norm(x, {x.size(3)}, {}, {}, branch.epsilon);
    at::Tensor y = qna_layer(normed, p, taking_part, geometry);
    if (branch.drop_factor.has_value()) y = y * branch.drop_factor->view({-1, 1, 1, 1});
    return branch.residual ? x + y : y;
  }
  if (wants_gradient({x, p.score_weight, p.value_weight, p.out_weight},
                     {p.value_bias, p.out_bias, p.bias, p.tap_weights})) {
    return qna_layer_with_gradient(x, p, taking_part, geometry, 1, &branch);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return qna_layer_fused(x, p, taking_part, shape, 1, {}, &branch);
}

void register_qna_layer(Libraries& libraries) {
  libraries.definitions.def(
      "qna_layer(Tensor x, Tensor score_weight, Tensor value_weight, Tensor? value_bias, "
      "Tensor out_weight, Tensor? out_bias, Tensor? bias, Tensor? tap_weights, Tensor? mask, "
      "int[2] kernel_size, int[2] stride, int[4] padding, int[2] dilation, int upsample) -> "
      "Tensor");
  libraries.definitions.impl(
      "qna_layer",
      torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, unpacked<forward_any>));
  libraries.cpu.impl("qna_layer", unpacked<forward_cpu>);
  libraries.meta.impl("qna_layer", unpacked<forward_meta>);
  libraries.autograd_cpu.impl("qna_layer", unpacked<forward_autograd>);
  libraries.autocast_cpu.impl(
      "qna_layer", unpacked<forward_autocast<c10::DispatchKey::AutocastCPU, c10::DeviceType::CPU>>);
  libraries.autocast_cuda.impl(
      "qna_layer",
      unpacked<forward_autocast<c10::DispatchKey::AutocastCUDA, c10::DeviceType::CUDA>>);
}

}  // namespace qna::ops
