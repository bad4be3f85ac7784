#include <cmath>
#include <vector>

#include "qna/kernels/branch_reference.h"
#include "qna/kernels/mlp_branch.h"

namespace qna::kernels {
namespace {

struct Activated {
  double value;
  double slope;
};

Activated activate_with_slope(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return {x, 1};
    case Activation::kGeluTanh: {
      const double c = std::sqrt(2 / M_PI);
      const double t = std::tanh(c * (x + 0.044715 * x * x * x));
      return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)};
    }
    case Activation::kGelu: {
      const double phi = (1 + std::erf(x / std::sqrt(2.0))) / 2;
      return {x * phi, phi + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI)};
    }
    case Activation::kRelu:
      return {x < 0 ? 0 : x, x > 0 ? 1.0 : 0.0};  // NaN stays NaN
    case Activation::kRelu6:
      return {activate(x, activation), x > 0 && x < 6 ? 1.0 : 0.0};
    case Activation::kSilu: {
      const double s = 1 / (1 + std::exp(-x));
      return {x * s, s + x * s * (1 - s)};
    }
  }
  return {x, 1};
}

}  // namespace

template <typename T>
void mlp_branch_reference(const MlpBranchArgs<T>& args, Runtime&) {
  const MlpBranchInputs<T>& in = args.in;
  for (int64_t r = 0; r < in.rows; ++r) {
    const double drop_factor = factor_of(in.drop_factor, r / in.drop_rows);
    std::vector<double> branch(in.features, 0.0);
    if (drop_factor != 0) {
      const Normalized norm = normalize(in.x + r * in.features, in.features, in.epsilon);
      branch.assign(in.bias2, in.bias2 + in.features);
      for (int64_t k = 0; k < in.hidden; ++k) {
        double h = in.bias1[k];
        for (int64_t c = 0; c < in.features; ++c) {
          h += (in.norm_weight[c] * norm.n[c] + in.norm_bias[c]) * in.weight1[k * in.features + c];
        }
        args.h[r * in.hidden + k] = static_cast<T>(h);
        const double a = activate_with_slope(h, in.activation).value;
        for (int64_t c = 0; c < in.features; ++c) branch[c] += a * in.weight2[c * in.hidden + k];
      }
    }
    for (int64_t c = 0; c < in.features; ++c) {
      const int64_t at = r * in.features + c;
      args.y[at] = static_cast<T>(in.x[at] + drop_factor * branch[c]);
    }
  }
}

template <typename T>
void mlp_branch_backward_reference(const MlpBranchBackwardArgs<T>& args, Runtime&) {
  const MlpBranchInputs<T>& in = args.in;
  std::vector<double> norm_weight(in.features), norm_bias(in.features), bias1(in.hidden),
      bias2(in.features), weight1(in.hidden * in.features), weight2(in.hidden * in.features);
  for (int64_t r = 0; r < in.rows; ++r) {
    const double drop_factor = factor_of(in.drop_factor, r / in.drop_rows);
    const T* dy = args.grad_y + r * in.features;
    std::vector<double> dx(dy, dy + in.features);
    if (drop_factor != 0) {
      const Normalized norm = normalize(in.x + r * in.features, in.features, in.epsilon);
      std::vector<double> dn(in.features);
      for (int64_t c = 0; c < in.features; ++c) bias2[c] += drop_factor * dy[c];
      for (int64_t k = 0; k < in.hidden; ++k) {
        const Activated a = activate_with_slope(args.h[r * in.hidden + k], in.activation);
        double da = 0;
        for (int64_t c = 0; c < in.features; ++c) {
          da += drop_factor * dy[c] * in.weight2[c * in.hidden + k];
          weight2[c * in.hidden + k] += drop_factor * dy[c] * a.value;
        }
        const double dh = da * a.slope;
        bias1[k] += dh;
        for (int64_t c = 0; c < in.features; ++c) {
          const double w = in.weight1[k * in.features + c];
          weight1[k * in.features + c] += dh * (in.norm_weight[c] * norm.n[c] + in.norm_bias[c]);
          norm_weight[c] += dh * w * norm.n[c];
          norm_bias[c] += dh * w;
          dn[c] += dh * w * in.norm_weight[c];
        }
      }
      add_norm_gradient(dx, dn, norm);
    }
    for (int64_t c = 0; c < in.features; ++c) {
      args.grad_x[r * in.features + c] = static_cast<T>(dx[c]);
    }
  }
  write_cells(args.grad_norm_weight, norm_weight);
  write_cells(args.grad_norm_bias, norm_bias);
  write_cells(args.grad_weight1, weight1);
  write_cells(args.grad_bias1, bias1);
  write_cells(args.grad_weight2, weight2);
  write_cells(args.grad_bias2, bias2);
}

template void mlp_branch_reference(const MlpBranchArgs<float>&, Runtime&);
template void mlp_branch_reference(const MlpBranchArgs<double>&, Runtime&);
template void mlp_branch_backward_reference(const MlpBranchBackwardArgs<float>&, Runtime&);
template void mlp_branch_backward_reference(const MlpBranchBackwardArgs<double>&, Runtime&);

}  // namespace qna::kernels
