#include "qna/nn/mixer.h"

#include "qna/base/error.h"
#include "qna/base/text.h"

namespace qna::nn {

void check_map(const torch::Tensor& x, int64_t features, const torch::Tensor& mask,
               const char* layer) {
  check(x.defined() && x.dim() == 4 && x.size(3) == features,
        "{}: x must be [batch, height, width, {}], got {}", layer, features,
        x.defined() ? in_brackets(x.sizes()) : "an undefined tensor");
  check(!mask.defined() ||
            (mask.scalar_type() == torch::kBool && mask.sizes() == x.sizes().slice(0, 3)),
        "{}: mask must be bool of {}, got {}", layer, in_brackets(x.sizes().slice(0, 3)),
        mask.defined() ? in_brackets(mask.sizes()) : "");
}

}  // namespace qna::nn
