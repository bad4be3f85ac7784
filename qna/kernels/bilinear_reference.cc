#include <algorithm>
#include <cmath>

#include "qna/kernels/bilinear.h"

namespace qna::kernels {
namespace {

// The two pixels beside a place between them, and the weight of the second.
struct Between {
  Between(int64_t out, int64_t size, int64_t factor) {
    const double place =
        std::max(0.0, (static_cast<double>(out) + 0.5) / static_cast<double>(factor) - 0.5);
    first = static_cast<int64_t>(place);
    second = std::min(first + 1, size - 1);
    weight = place - static_cast<double>(first);
  }
  int64_t first, second;
  double weight;
};

}  // namespace

void bilinear_reference(const BilinearArgs& args, Runtime&) {
  float* y = args.y;
  for (int64_t image = 0; image < args.batch; ++image)
    for (int64_t i = 0; i < args.height * args.factor; ++i)
      for (int64_t j = 0; j < args.width * args.factor; ++j) {
        const Between row(i, args.height, args.factor);
        const Between column(j, args.width, args.factor);
        for (int64_t c = 0; c < args.features; ++c) {
          const auto at = [&](int64_t h, int64_t w) -> double {
            return args.x[((image * args.height + h) * args.width + w) * args.features + c];
          };
          const auto across = [&](int64_t h) {
            return (1 - column.weight) * at(h, column.first) + column.weight * at(h, column.second);
          };
          *y++ = static_cast<float>((1 - row.weight) * across(row.first) +
                                    row.weight * across(row.second));
        }
      }
}

}  // namespace qna::kernels
