#include "qna/nn/mixer.h"

#include "qna/base/error.h"
#include "qna/ops/geometry.h"

namespace qna::nn {

void check_map(const torch::Tensor& x, int64_t features, const torch::Tensor& mask,
               const char* layer) {
  check(x.defined() && x.dim() == 4 && x.size(3) == features,
        "{}: x must be [batch, height, width, {}], got {}", layer, features,
        x.defined() ? ops::sizes_text(x.sizes()) : "an undefined tensor");
  check(!mask.defined() ||
            (mask.scalar_type() == torch::kBool && mask.sizes() == x.sizes().slice(0, 3)),
        "{}: mask must be bool of {}, got {}", layer, ops::sizes_text(x.sizes().slice(0, 3)),
        mask.defined() ? ops::sizes_text(mask.sizes()) : "");
}

void check_heads(int64_t heads, int64_t features, const char* layer) {
  check(heads >= 1 && features % heads == 0,
        "{}: heads must be at least 1 and divide features ({}), got {}", layer, features, heads);
}

void check_at_least_one(std::array<int64_t, 2> values, const char* name, const char* layer) {
  for (int axis = 0; axis < 2; ++axis) {
    check(values[axis] >= 1, "{}: {} ({}) must be at least 1, got {}", layer, name,
          axis == 0 ? "height" : "width", values[axis]);
  }
}

std::array<int64_t, 4> same_padding(std::array<int64_t, 2> kernel_size,
                                    std::array<int64_t, 2> dilation) {
  const int64_t rows = (kernel_size[0] - 1) * dilation[0];
  const int64_t columns = (kernel_size[1] - 1) * dilation[1];
  return {rows / 2, rows - rows / 2, columns / 2, columns - columns / 2};
}

}  // namespace qna::nn
