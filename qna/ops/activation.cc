#include "qna/ops/activation.h"

namespace qna::ops {

at::Tensor activate(const at::Tensor& x, kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kNone:
      return x;
    case kernels::Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case kernels::Activation::kGelu:
      return at::gelu(x);
    case kernels::Activation::kRelu:
      return at::relu(x);
    case kernels::Activation::kRelu6:
      return at::relu6(x);
    case kernels::Activation::kSilu:
      return at::silu(x);
  }
  return x;
}

}  // namespace qna::ops
