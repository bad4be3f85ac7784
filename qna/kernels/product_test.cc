// The matrix product inside the layer, over every tail of its tiles.
#include "qna/kernels/product.h"

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

std::vector<double> run(const auto& kernel, int64_t rows, int64_t inner, int64_t columns,
                        const std::vector<float>& a, const std::vector<float>& b, int workers = 1) {
  ThreadRuntime runtime(workers);
  return collect_guarded<float>(rows * columns, [&](float* c) {
    kernel(ProductArgs{rows, inner, columns, a.data(), b.data(), c}, runtime);
  });
}

void compare_all(int64_t rows, int64_t inner, int64_t columns) {
  const std::vector<float> a = normal_floats(rows * inner, 1);
  const std::vector<float> b = normal_floats(inner * columns, 2);
  const std::vector<double> expected = run(&product_reference, rows, inner, columns, a, b);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(fmt::format("{} {} x {} x {}", implementation->name, rows, inner, columns));
    // Each of `inner` additions of terms of order 1 rounds a sum of order sqrt(inner) by 2^-24.
    const double inner_count = static_cast<double>(inner);
    EXPECT_TRUE(near(run(implementation->product, rows, inner, columns, a, b), expected,
                     4 * inner_count * std::sqrt(inner_count) * 0x1p-24));
  }
}

TEST(Product, EveryRowAndColumnTail) {
  for (int64_t rows = 1; rows <= 20; ++rows)
    for (int64_t columns = 1; columns <= 20 && !HasFailure(); ++columns) {
      compare_all(rows, 5, columns);
    }
}

TEST(Product, EveryInnerLength) {
  for (int64_t inner = 1; inner <= 70 && !HasFailure(); ++inner) compare_all(7, inner, 9);
}

// Columns over several panels, and rows over several chunks.
TEST(Product, Large) {
  for (int64_t columns = 21; columns <= 150 && !HasFailure(); ++columns) {
    compare_all(8, 3, columns);
  }
  for (const int64_t rows : {255, 256, 257, 513, 600}) compare_all(rows, 17, 33);
}

TEST(Product, SameBitsForAnyNumberOfWorkers) {
  const std::vector<float> a = normal_floats(700 * 30, 1);
  const std::vector<float> b = normal_floats(30 * 40, 2);
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> one = run(implementation->product, 700, 30, 40, a, b, 1);
    EXPECT_EQ(one, run(implementation->product, 700, 30, 40, a, b, 2));
    EXPECT_EQ(one, run(implementation->product, 700, 30, 40, a, b, 3));
  }
}

}  // namespace
}  // namespace qna::kernels::testing
