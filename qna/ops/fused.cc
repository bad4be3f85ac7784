#include "qna/ops/fused.h"

#include <ATen/autocast_mode.h>

namespace qna::ops {

bool is_fused(OperatorClass operator_class, std::initializer_list<OptionalTensor> tensors) {
  const bool map = operator_class == OperatorClass::kMap;
  if (!map && at::autocast::is_autocast_enabled(at::kCPU)) return false;
  for (const OptionalTensor& tensor : tensors) {
    if (!given(tensor)) continue;
    const at::ScalarType type = tensor->scalar_type();
    const bool narrow = type == at::kBFloat16 || type == at::kHalf;
    if (!tensor->device().is_cpu() || !(type == at::kFloat || (map && narrow))) return false;
  }
  return true;
}

}  // namespace qna::ops
