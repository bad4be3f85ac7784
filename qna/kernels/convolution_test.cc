// convolution of every implementation against the reference.
#include "qna/kernels/convolution.h"

#include "qna/kernels/convolution_shapes_testonly.h"
#include "qna/kernels/product_options_testonly.h"

namespace qna::kernels::testing {
namespace {

struct ConvolutionProblem {
  ConvolutionProblem(const ConvolutionShape& shape_in, int64_t columns_in,
                     const ProductOptions& options_in = {})
      : shape(shape_in), columns(columns_in), options(options_in) {
    x = normal_floats(shape.pixels() * shape.in_features, 1);
    // By fan-in, so that the products are of order 1.
    weight = normal_floats(inner() * columns, 2, fan_in(inner()));
    bias = normal_floats(columns, 3);
    residual = normal_floats(outputs(), 4);
  }
  int64_t inner() const { return shape.taps() * shape.in_features; }
  int64_t outputs() const { return shape.windows() * columns; }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    const PackedWeights packed = pack_matrix({.inner = inner(),
                                              .columns = columns,
                                              .weight = weight.data(),
                                              .inner_stride = columns,
                                              .column_stride = 1,
                                              .bias = options.bias ? bias.data() : nullptr,
                                              .type = type},
                                             runtime);
    return one_output(outputs(), product_tolerance(inner()), [&](float* y) {
      convolution({.shape = shape,
                   .x = x.data(),
                   .norm = {.wanted = options.norm, .epsilon = options.epsilon},
                   .weights = &packed,
                   .activation = options.activation,
                   .residual = residual_of(options.residual, residual, x.data(), y),
                   .y = y},
                  runtime);
    });
  }

  int64_t count() const { return shape.batch; }
  ConvolutionProblem alone(int64_t image) const {
    ConvolutionProblem one = *this;
    one.shape.batch = 1;
    one.x = part_of(x, image, count());
    one.residual = part_of(residual, image, count());
    return one;
  }

  std::string text() const {
    return fmt::format("{} -> {}, {}", testing::text(shape), columns, testing::text(options));
  }

  ConvolutionShape shape;
  int64_t columns;
  ProductOptions options;
  OddInput<float> x, weight, bias, residual;
  WeightType type = WeightType::kFloat32;
};

struct Convolution {
  using Problem = ConvolutionProblem;

  static void near(const auto& visit) {
    const std::vector<ProductOptions> options = all_product_options();
    size_t round = 0;  // the options take turns
    for (const int64_t in : {1, 3, 16, 21})
      for (const ConvolutionShape& shape : convolution_shapes(in)) {
        const auto columns = 1 + static_cast<int64_t>(round * 7 % 40);
        visit("shapes", Problem(shape, columns, options[round % options.size()]));
        ++round;
      }
    for (const ProductOptions& o : options) {
      visit("all options", Problem(square_window(2, 6, 7, 9, 3), 37, o));
      visit("all options, multiplied in place", Problem(square_window(2, 6, 7, 9, 1), 37, o));
    }
    for (int64_t in = 1; in <= 70; ++in) {
      const ConvolutionShape s{.height = 3,
                               .width = 5,
                               .in_features = in,
                               .kernel_h = 2,
                               .kernel_w = 3,
                               .pad_left = 1,
                               .dilation_w = 1 + in % 2};
      visit("input tails", Problem(with_out_size(s), 5, {.norm = in % 3 == 0}));
    }
    for (int64_t columns = 1; columns <= 150; ++columns) {
      const ConvolutionShape s{.height = 4, .width = 5, .in_features = 3, .kernel_h = 2};
      visit("output tails", Problem(with_out_size(s), columns, {.residual = Residual::kOutput}));
    }
    // More windows than one task takes, products over many elements, more columns than one task
    // takes.
    visit("large map",
          Problem(square_window(2, 23, 19, 40, 3), 24, {.activation = Activation::kRelu}));
    visit("deep", Problem(square_window(1, 4, 4, 300, 3), 200, {.residual = Residual::kOther}));
    // What lies outside is 0, and 0 times infinity is NaN.
    Problem infinite(square_window(1, 3, 4, 2, 3), 4);
    infinite.weight[1] = kInfinity;  // of the top left tap
    visit("infinite weight", infinite);
  }

  static void bits(const auto& visit) {
    for (const ProductOptions& options :
         {ProductOptions{},
          {.activation = Activation::kGelu},
          {.norm = true},
          {.activation = Activation::kRelu, .residual = Residual::kOutput}})
      for (const int64_t kernel : {1, 3})
        for (const int64_t columns : {5, 70, 150}) {
          visit("bits", Problem(square_window(3, 7, 9, 20, kernel), columns, options));
        }
  }

  static Problem nothing() {
    return {with_out_size({.batch = 0, .height = 7, .width = 9, .in_features = 20, .kernel_h = 3}),
            5};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Convolution, Operator, Convolution);

// A NaN or infinity goes where its windows are, and no further.
TEST(Convolution, WeightsKeptAsBFloat16) {
  ConvolutionProblem kept(square_window(2, 9, 14, 30, 3), 100), rounded = kept;
  kept.type = WeightType::kBFloat16;
  round_to_bfloat16(rounded.weight);
  compare_all(kept, {1, 3});
  for_each_implementation([&] { EXPECT_TRUE(same_bits(kept.run(), rounded.run())); });
}

TEST(Convolution, NanAndInfinity) {
  for (const float poison : {kNan, kInfinity})
    for (const ProductOptions& options :
         {ProductOptions{}, {.activation = Activation::kRelu}, {.norm = true}}) {
      ConvolutionProblem problem(square_window(2, 6, 7, 5, 3), 20, options);
      problem.x[(2 * 7 + 3) * 5 + 4] = poison;  // in the first image
      const std::vector<double> y = compare_all(problem).cells();
      for (int64_t i = 0; i < problem.outputs(); ++i) {
        const int64_t row = i / 20 / 7, column = i / 20 % 7;
        const bool reached = row >= 1 && row <= 3 && column >= 2 && column <= 4;
        EXPECT_TRUE(reached || std::isfinite(y[i]));
      }
    }
}

}  // namespace
}  // namespace qna::kernels::testing
