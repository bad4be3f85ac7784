#include <cmath>
#include <vector>

#include "qna/kernels/branch_reference.h"
#include "qna/kernels/window_self_attention.h"
#include "qna/kernels/window_self_attention_branch.h"

namespace qna::kernels {
namespace {

// One image's attention.
template <typename T>
WindowSelfAttentionArgs<T> attention_of(const WindowSelfAttentionBranchInputs<T>& in, int64_t image,
                                        const T* qkv, T* mixed) {
  const int64_t first = image * in.image_rows();
  WindowSelfAttentionArgs<T> args =
      in.attention(qkv + first * 3 * in.features, mixed + first * in.features);
  args.batch = 1;
  if (args.mask != nullptr) args.mask += first;
  return args;
}

}  // namespace

template <typename T>
void window_self_attention_branch_reference(const WindowSelfAttentionBranchArgs<T>& args,
                                            Runtime& runtime) {
  const WindowSelfAttentionBranchInputs<T>& in = args.in;
  const int64_t features = in.features;
  for (int64_t b = 0; b < in.batch; ++b) {
    const double drop_factor = factor_of(in.drop_factor, b);
    const int64_t begin = b * in.image_rows(), end = begin + in.image_rows();
    if (drop_factor == 0) {
      for (int64_t i = begin * features; i < end * features; ++i) args.y[i] = in.x[i];
      continue;
    }
    for (int64_t r = begin; r < end; ++r) {
      const Normalized norm = normalize(in.x + r * features, features, in.epsilon);
      for (int64_t k = 0; k < 3 * features; ++k) {
        double sum = 0;
        for (int64_t c = 0; c < features; ++c) {
          sum +=
              (in.norm_weight[c] * norm.n[c] + in.norm_bias[c]) * in.qkv_weight[k * features + c];
        }
        args.qkv[r * 3 * features + k] = static_cast<T>(sum);
      }
    }
    window_self_attention_reference<T>(attention_of<T>(in, b, args.qkv, args.mixed), runtime);
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < features; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < features; ++k) {
          sum +=
              static_cast<double>(args.mixed[r * features + k]) * in.proj_weight[c * features + k];
        }
        args.y[r * features + c] = static_cast<T>(in.x[r * features + c] + drop_factor * sum);
      }
  }
}

template <typename T>
void window_self_attention_branch_backward_reference(
    const WindowSelfAttentionBranchBackwardArgs<T>& args, Runtime& runtime) {
  const WindowSelfAttentionBranchInputs<T>& in = args.in;
  const int64_t features = in.features;
  const int64_t cells =
      in.bias == nullptr ? 0 : in.heads * (2 * in.bias_h - 1) * (2 * in.bias_w - 1);
  std::vector<double> norm_weight(features), norm_bias(features),
      qkv_weight(3 * features * features), proj_weight(features * features), bias(cells);
  std::vector<T> grad_mixed(in.image_rows() * features), grad_qkv(3 * in.image_rows() * features),
      grad_bias(cells);
  std::vector<T> mixed(args.mixed, args.mixed + in.rows() * features);  // what `out` points to
  for (int64_t b = 0; b < in.batch; ++b) {
    const double drop_factor = factor_of(in.drop_factor, b);
    const int64_t begin = b * in.image_rows();
    const T* dy = args.grad_y + begin * features;
    T* dx = args.grad_x + begin * features;
    if (drop_factor == 0) {
      for (int64_t i = 0; i < in.image_rows() * features; ++i) dx[i] = dy[i];
      continue;
    }
    for (int64_t r = 0; r < in.image_rows(); ++r)
      for (int64_t k = 0; k < features; ++k) {
        double sum = 0;
        for (int64_t c = 0; c < features; ++c) {
          const double grad = drop_factor * dy[r * features + c];
          sum += grad * in.proj_weight[c * features + k];
          proj_weight[c * features + k] += grad * mixed[(begin + r) * features + k];
        }
        grad_mixed[r * features + k] = static_cast<T>(sum);
      }
    window_self_attention_backward_reference<T>(
        {.forward = attention_of<T>(in, b, args.qkv, mixed.data()),
         .grad_out = grad_mixed.data(),
         .grad_qkv = grad_qkv.data(),
         .grad_bias = in.bias == nullptr ? nullptr : grad_bias.data()},
        runtime);
    for (int64_t i = 0; i < cells; ++i) bias[i] += grad_bias[i];
    for (int64_t r = 0; r < in.image_rows(); ++r) {
      const Normalized norm = normalize(in.x + (begin + r) * features, features, in.epsilon);
      std::vector<double> dn(features);
      for (int64_t k = 0; k < 3 * features; ++k)
        for (int64_t c = 0; c < features; ++c) {
          const double grad = grad_qkv[r * 3 * features + k];
          const double w = in.qkv_weight[k * features + c];
          qkv_weight[k * features + c] += grad * (in.norm_weight[c] * norm.n[c] + in.norm_bias[c]);
          norm_weight[c] += grad * w * norm.n[c];
          norm_bias[c] += grad * w;
          dn[c] += grad * w * in.norm_weight[c];
        }
      std::vector<double> row(dy + r * features, dy + (r + 1) * features);
      add_norm_gradient(row, dn, norm);
      write_cells(dx + r * features, row);
    }
  }
  write_cells(args.grad_norm_weight, norm_weight);
  write_cells(args.grad_norm_bias, norm_bias);
  write_cells(args.grad_qkv_weight, qkv_weight);
  write_cells(args.grad_proj_weight, proj_weight);
  if (in.bias != nullptr) write_cells(args.grad_bias, bias);
}

template void window_self_attention_branch_reference(const WindowSelfAttentionBranchArgs<float>&,
                                                     Runtime&);
template void window_self_attention_branch_reference(const WindowSelfAttentionBranchArgs<double>&,
                                                     Runtime&);
template void window_self_attention_branch_backward_reference(
    const WindowSelfAttentionBranchBackwardArgs<float>&, Runtime&);
template void window_self_attention_branch_backward_reference(
    const WindowSelfAttentionBranchBackwardArgs<double>&, Runtime&);

}  // namespace qna::kernels
