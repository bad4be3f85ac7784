#include "qna/ops/window_self_attention.h"

#include <ATen/ATen.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/kernels/window_self_attention.h"
#include "qna/ops/autograd.h"
#include "qna/ops/fused.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using torch::autograd::AutogradContext;

constexpr const char* kName = "window_self_attention";

// [B, H, W, ...] -> [B * windows, tokens, ...] for a map that the window divides.
at::Tensor split(const at::Tensor& x, std::array<int64_t, 2> window) {
  const int64_t rows = x.size(1) / window[0];
  const int64_t columns = x.size(2) / window[1];
  std::vector<int64_t> sizes = {x.size(0), rows, window[0], columns, window[1]};
  const auto rest = x.sizes().slice(3);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  std::vector<int64_t> merged = {x.size(0) * rows * columns, window[0] * window[1]};
  merged.insert(merged.end(), rest.begin(), rest.end());
  return x.reshape(sizes).transpose(2, 3).reshape(merged);
}

// [B * windows, tokens, C] -> [B, H, W, C]
at::Tensor merge(const at::Tensor& x, int64_t batch, int64_t height, int64_t width,
                 std::array<int64_t, 2> window) {
  return x.reshape({batch, height / window[0], width / window[1], window[0], window[1], x.size(-1)})
      .transpose(2, 3)
      .reshape({batch, height, width, x.size(-1)});
}

// Where the table [heads, rows, columns], its last two dimensions flattened, holds key minus query:
// [N, N].
at::Tensor table_index(std::array<int64_t, 2> window, const at::Tensor& table) {
  const auto options = at::TensorOptions(at::kLong).device(table.device());
  const int64_t table_w = table.size(2);
  const auto coordinate = [&](int64_t size, bool is_row) {
    const at::Tensor range = at::arange(size, options);
    return (is_row ? range.view({-1, 1}) : range.view({1, -1}))
        .expand({window[0], window[1]})
        .reshape({-1});
  };
  const at::Tensor y = coordinate(window[0], true);
  const at::Tensor x = coordinate(window[1], false);
  const at::Tensor dy = y.view({1, -1}) - y.view({-1, 1}) + table.size(1) / 2;
  const at::Tensor dx = x.view({1, -1}) - x.view({-1, 1}) + table_w / 2;
  return dy * table_w + dx;
}

std::array<int64_t, 2> window_on(const at::Tensor& qkv, std::array<int64_t, 2> window) {
  return {std::min(window[0], qkv.size(1)), std::min(window[1], qkv.size(2))};
}

// The tensors as contiguous arrays, held while a kernel runs.
struct Arrays {
  Arrays(const at::Tensor& qkv_in, int64_t heads, std::array<int64_t, 2> window,
         const OptionalTensor& bias_in, const OptionalTensor& mask_in)
      : qkv(qkv_in.contiguous()), bias(as_table(bias_in)) {
    if (mask_in.has_value()) mask = mask_in->contiguous();
    const int64_t dim = qkv.size(3) / (3 * heads);
    const std::array<int64_t, 2> cut = window_on(qkv, window);
    args = {.batch = qkv.size(0),
            .height = qkv.size(1),
            .width = qkv.size(2),
            .heads = heads,
            .head_dim = dim,
            .window_h = cut[0],
            .window_w = cut[1],
            .qkv = qkv.const_data_ptr<float>(),
            .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
            .bias = table_pointer(bias),
            .bias_h = bias.has_value() ? (bias->size(1) + 1) / 2 : 0,
            .bias_w = bias.has_value() ? (bias->size(2) + 1) / 2 : 0,
            .mask = mask_pointer(mask),
            .out = nullptr};
  }
  at::Tensor qkv;
  OptionalTensor bias, mask;
  kernels::WindowSelfAttentionArgs<float> args;
};

at::Tensor run_kernel(const at::Tensor& qkv, int64_t heads, std::array<int64_t, 2> window,
                      const OptionalTensor& bias, const OptionalTensor& mask) {
  Arrays arrays(qkv, heads, window, bias, mask);
  const at::Tensor out =
      at::empty({qkv.size(0), qkv.size(1), qkv.size(2), qkv.size(3) / 3}, qkv.options());
  arrays.args.out = out.data_ptr<float>();
  TorchRuntime runtime;
  kernels::window_self_attention(arrays.args, runtime);
  return out;
}

struct WindowSelfAttention : torch::autograd::Function<WindowSelfAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const OptionalTensor& bias, const OptionalTensor& mask, int64_t heads,
                            std::array<int64_t, 2> window) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor out = run_kernel(qkv, heads, window, bias, mask);
    context->save_for_backward({qkv, or_undefined(bias), or_undefined(mask), out});
    context->saved_data["heads"] = heads;
    context->saved_data["window"] = std::vector<int64_t>{window[0], window[1]};
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const OptionalTensor bias = or_nothing(saved[1]);
    const OptionalTensor mask = or_nothing(saved[2]);
    const int64_t heads = context->saved_data["heads"].toInt();
    const std::vector<int64_t> sides = context->saved_data["window"].toIntVector();
    const std::array<int64_t, 2> window = {sides[0], sides[1]};
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      gradients = differentiable_gradients(
          {saved[0], saved[1]}, grad_outputs[0], [&](const variable_list& in) {
            return window_self_attention_composite(in[0], heads, window, or_nothing(in[1]), mask);
          });
    } else {
      Arrays arrays(saved[0], heads, window, bias, mask);
      const at::Tensor out = saved[3];
      const at::Tensor grad_out = grad_outputs[0].contiguous();
      const at::Tensor grad_qkv = at::empty(saved[0].sizes(), saved[0].options());
      const at::Tensor grad_bias =
          bias.has_value() ? at::empty(bias->sizes(), saved[0].options()) : at::Tensor();
      arrays.args.out = out.data_ptr<float>();
      TorchRuntime runtime;
      kernels::window_self_attention_backward(
          {.forward = arrays.args,
           .grad_out = grad_out.const_data_ptr<float>(),
           .grad_qkv = grad_qkv.data_ptr<float>(),
           .grad_bias = grad_bias.defined() ? grad_bias.data_ptr<float>() : nullptr},
          runtime);
      gradients = {grad_qkv, grad_bias};
    }
    gradients.resize(5);  // none for mask, heads and window
    return gradients;
  }
};

}  // namespace

at::Tensor window_self_attention_composite(const at::Tensor& qkv, int64_t heads,
                                           std::array<int64_t, 2> wanted_window,
                                           const OptionalTensor& table,
                                           const OptionalTensor& mask) {
  const int64_t batch = qkv.size(0), height = qkv.size(1), width = qkv.size(2);
  const int64_t features = qkv.size(3) / 3;
  const int64_t dim = features / heads;
  const std::array<int64_t, 2> window = window_on(qkv, wanted_window);
  const int64_t tokens = window[0] * window[1];

  // Padded at the bottom and right to whole windows; what is added is masked.
  const int64_t bottom = (window[0] - height % window[0]) % window[0];
  const int64_t right = (window[1] - width % window[1]) % window[1];
  const bool padded = bottom > 0 || right > 0;
  at::Tensor map = qkv;
  at::Tensor keys = or_undefined(mask);
  if (padded) {
    map = at::constant_pad_nd(qkv, {0, 0, 0, right, 0, bottom});
    if (!keys.defined()) keys = at::ones({batch, height, width}, qkv.options().dtype(at::kBool));
    keys = at::constant_pad_nd(keys, {0, right, 0, bottom});
  }

  const at::Tensor parts = split(map, window)
                               .view({-1, tokens, 3, heads, dim})
                               .permute({2, 0, 3, 1, 4});  // [3, B * windows, heads, tokens, dim]
  const at::Tensor q = parts[0] * (1 / std::sqrt(static_cast<double>(dim)));
  at::Tensor scores = at::matmul(q, parts[1].transpose(-2, -1));
  if (table.has_value()) {
    scores = scores + table->reshape({heads, -1})
                          .index_select(1, table_index(window, *table).view({-1}))
                          .view({heads, tokens, tokens});
  }
  at::Tensor weights;
  if (keys.defined()) {
    // The smallest number, not -inf: a window without keys would give NaN, in the gradient too.
    const at::Tensor taking_part = split(keys, window).view({-1, 1, 1, tokens});
    const double lowest = scores.scalar_type() == at::kHalf ? -65504.0 : -3.0e38;
    weights = scores.masked_fill(~taking_part, lowest).softmax(-1) * taking_part;
  } else {
    weights = scores.softmax(-1);
  }
  const at::Tensor mixed = at::matmul(weights, parts[2])  // [B * windows, heads, tokens, dim]
                               .transpose(1, 2)
                               .reshape({-1, tokens, features});
  const at::Tensor y = merge(mixed, batch, height + bottom, width + right, window);
  return padded ? y.slice(1, 0, height).slice(2, 0, width) : y;
}

void check_attention_windows(const char* name, const at::Tensor& map, int64_t heads,
                             std::array<int64_t, 2> window, const OptionalTensor& bias,
                             const OptionalTensor& mask) {
  check(window[0] >= 1 && window[1] >= 1, "{}: window must be at least 1 x 1, got {} x {}", name,
        window[0], window[1]);
  const std::array<int64_t, 2> cut = window_on(map, window);
  if (bias.has_value()) {
    check(bias->dim() == 3 && bias->size(0) == heads && bias->size(1) >= 2 * cut[0] - 1 &&
              bias->size(2) >= 2 * cut[1] - 1,
          "{}: bias must be [{}, at least {}, at least {}], got {}", name, heads, 2 * cut[0] - 1,
          2 * cut[1] - 1, in_brackets(bias->sizes()));
  }
  check(!mask.has_value() ||
            (mask->scalar_type() == at::kBool && mask->sizes() == map.sizes().slice(0, 3)),
        "{}: mask must be bool of [batch, height, width], got {}", name,
        mask.has_value() ? in_brackets(mask->sizes()) : "");
}

at::Tensor window_self_attention(const at::Tensor& qkv, int64_t heads,
                                 std::array<int64_t, 2> window, const OptionalTensor& bias,
                                 const OptionalTensor& mask) {
  check(heads >= 1 && qkv.dim() == 4 && qkv.size(3) % (3 * heads) == 0,
        "{}: qkv must be [batch, height, width, 3 x {} heads x dim], got {}", kName, heads,
        in_brackets(qkv.sizes()));
  check_attention_windows(kName, qkv, heads, window, bias, mask);
  if (qkv.numel() == 0) {
    return at::empty({qkv.size(0), qkv.size(1), qkv.size(2), qkv.size(3) / 3}, qkv.options());
  }
  if (!is_fused(OperatorClass::kBranch, {qkv, bias}))
    return window_self_attention_composite(qkv, heads, window, bias, mask);
  if (!wants_gradient({qkv}, {bias})) return run_kernel(qkv, heads, window, bias, mask);
  return WindowSelfAttention::apply(qkv, bias, mask, heads, window);
}

}  // namespace qna::ops
