// The matrix product inside the layer, over every tail of its tiles.
#include "qna/kernels/product.h"

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

struct ProductProblem {
  ProductProblem(int64_t rows_in, int64_t inner_in, int64_t columns_in)
      : rows(rows_in),
        inner(inner_in),
        columns(columns_in),
        a(normal_floats(rows * inner, 1)),
        b(normal_floats(inner * columns, 2)) {}

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    // Each of `inner` additions of terms of order 1 rounds a sum of order sqrt(inner) by 2^-24.
    const double terms = static_cast<double>(inner);
    return one_output(rows * columns, {.absolute = 4 * terms * std::sqrt(terms) * 0x1p-24},
                      [&](float* c) {
                        product({rows, inner, columns, a.data(), b.data(), c}, runtime);
                      });
  }
  std::string text() const { return fmt::format("{} x {} x {}", rows, inner, columns); }

  int64_t rows, inner, columns;
  std::vector<float> a, b;
};

struct Product {
  using Problem = ProductProblem;

  static void near(const auto& visit) {
    for (int64_t rows = 1; rows <= 20; ++rows)
      for (int64_t columns = 1; columns <= 20; ++columns) {
        visit("row and column tails", Problem(rows, 5, columns));
      }
    for (int64_t inner = 1; inner <= 70; ++inner) visit("inner lengths", Problem(7, inner, 9));
    for (int64_t columns = 21; columns <= 150; ++columns) visit("panels", Problem(8, 3, columns));
    for (const int64_t rows : {255, 256, 257, 513, 600}) visit("chunks", Problem(rows, 17, 33));
  }
  static void bits(const auto& visit) { visit("many rows", Problem(700, 30, 40)); }
  static Problem nothing() { return {0, 5, 6}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Product, Operator, Product);

// Rows and columns of sizes from 1e-8 to 1e8: each element is near by the size of its own terms.
TEST(Product, EveryElementIsNearByItsOwnTerms) {
  for (Product::Problem p : {ProductProblem(7, 64, 33), {13, 700, 70}, {50, 3, 5}}) {
    const auto size = [](int64_t i) { return std::pow(10.0f, static_cast<float>(i * 5 % 17 - 8)); };
    for (int64_t i = 0; i < p.rows * p.inner; ++i) p.a[i] *= size(i / p.inner);
    for (int64_t i = 0; i < p.inner * p.columns; ++i) p.b[i] *= size(i % p.columns);
    ProductProblem sizes = p;
    for (float& cell : sizes.a) cell = std::abs(cell);
    for (float& cell : sizes.b) cell = std::abs(cell);
    const std::vector<double> expected = by_reference(p).cells(),
                              terms = by_reference(sizes).cells();
    for_each_simd([&] {
      const std::vector<double> found = p.run().cells();
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], static_cast<double>(p.inner + 2) * 0x1p-24 * terms[i])
            << p.text() << ", element " << i;
      }
    });
  }
}

}  // namespace
}  // namespace qna::kernels::testing
