// convolution of every implementation against the reference.
#include "qna/kernels/convolution.h"

#include "qna/kernels/network_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

enum class ResidualFrom { kNowhere, kOther, kOutput };

struct ConvolutionOptions {
  bool bias = true;
  bool norm = false;
  Activation activation = Activation::kNone;
  ResidualFrom residual = ResidualFrom::kNowhere;
};

std::vector<ConvolutionOptions> all_options() {
  std::vector<ConvolutionOptions> all;
  for (const bool bias : {false, true})
    for (const bool norm : {false, true})
      for (const Activation activation : kActivations)
        for (const ResidualFrom residual :
             {ResidualFrom::kNowhere, ResidualFrom::kOther, ResidualFrom::kOutput})
          all.push_back({bias, norm, activation, residual});
  return all;
}

struct ConvolutionProblem {
  ConvolutionProblem(const ConvolutionShape& shape_in, int64_t columns_in,
                     const ConvolutionOptions& options_in = {})
      : shape(shape_in), columns(columns_in), options(options_in) {
    x = normal_floats(shape.pixels() * shape.in_features, 1);
    // By fan-in, so that the products are of order 1.
    weight = normal_floats(inner() * columns, 2, 1 / std::sqrt(static_cast<float>(inner())));
    bias = normal_floats(columns, 3);
    residual = normal_floats(outputs(), 4);
  }
  int64_t inner() const { return shape.taps() * shape.in_features; }
  int64_t outputs() const { return shape.windows() * columns; }

  std::vector<double> run(const Implementation& implementation, int workers) const {
    ThreadRuntime runtime(workers);
    const PackedWeights packed =
        implementation.pack_matrix({.inner = inner(),
                                    .columns = columns,
                                    .weight = weight.data(),
                                    .inner_stride = columns,
                                    .column_stride = 1,
                                    .bias = options.bias ? bias.data() : nullptr},
                                   runtime);
    return collect_guarded<float>(outputs(), [&](float* y) {
      const float* from = nullptr;
      if (options.residual == ResidualFrom::kOther) from = residual.data();
      if (options.residual == ResidualFrom::kOutput) {
        std::copy_n(residual.data(), outputs(), y);
        from = y;
      }
      implementation.convolution({.shape = shape,
                                  .x = x.data(),
                                  .norm = {.wanted = options.norm},
                                  .weights = &packed,
                                  .activation = options.activation,
                                  .residual = from,
                                  .y = y},
                                 runtime);
    });
  }

  ConvolutionProblem image(int64_t b) const {
    ConvolutionProblem one = *this;
    one.shape.batch = 1;
    one.x = x.part(b, x.size() / shape.batch);
    one.residual = residual.part(b, residual.size() / shape.batch);
    return one;
  }

  std::string text() const {
    return fmt::format("{} -> {}, bias {}, norm {}, activation {}, residual {}",
                       testing::text(shape), columns, options.bias, options.norm,
                       static_cast<int>(options.activation), static_cast<int>(options.residual));
  }

  // As in dense_test.cc: sums of `inner` products, of order 1, each addition rounded by 2^-24 of
  // the sum so far; a norm before and an activation behind add a few roundings each.
  double tolerance() const { return 5 * static_cast<double>(inner() + 16) * 0x1p-24; }

  ConvolutionShape shape;
  int64_t columns;
  ConvolutionOptions options;
  OddInput<float> x, weight, bias, residual;
};

void compare(const ConvolutionProblem& problem) { compare_all(problem, problem.tolerance()); }

TEST(Convolution, Shapes) {
  const std::vector<ConvolutionOptions> options = all_options();
  size_t round = 0;  // the options take turns
  for (const int64_t in : {1, 3, 16, 21})
    for (const ConvolutionShape& shape : window_shapes(in)) {
      compare({shape, 1 + static_cast<int64_t>(round * 7 % 40), options[round % options.size()]});
      if (HasFailure()) return;
      ++round;
    }
}

TEST(Convolution, AllOptions) {
  for (const ConvolutionOptions& options : all_options()) {
    const ConvolutionShape map{.batch = 2, .height = 6, .width = 7, .in_features = 9};
    ConvolutionShape three = map;
    three.kernel_h = three.kernel_w = 3;
    three.pad_top = three.pad_left = 1;
    compare({with_out_size(three), 37, options});
    compare({with_out_size(map), 37, options});  // multiplied in place
    if (HasFailure()) return;
  }
}

TEST(Convolution, EveryInputTail) {
  for (int64_t in = 1; in <= 70 && !HasFailure(); ++in) {
    ConvolutionShape s{.height = 3, .width = 5, .in_features = in, .kernel_h = 2, .kernel_w = 3};
    s.pad_left = 1;
    s.dilation_w = 1 + in % 2;
    compare({with_out_size(s), 5, {.norm = in % 3 == 0}});
  }
}

TEST(Convolution, EveryOutputTail) {
  for (int64_t columns = 1; columns <= 150 && !HasFailure(); ++columns) {
    const ConvolutionShape s{.height = 4, .width = 5, .in_features = 3, .kernel_h = 2};
    compare({with_out_size(s), columns, {.residual = ResidualFrom::kOutput}});
  }
}

// More windows than one task takes, products over many elements, more columns than one task takes.
TEST(Convolution, LargeMaps) {
  ConvolutionShape s{.batch = 2, .height = 23, .width = 19, .in_features = 40, .kernel_h = 3};
  s.kernel_w = 3;
  s.pad_top = s.pad_left = 1;
  compare({with_out_size(s), 24, {.activation = Activation::kRelu}});
  const ConvolutionShape deep{.height = 4,
                              .width = 4,
                              .in_features = 300,
                              .kernel_h = 3,
                              .kernel_w = 3,
                              .pad_top = 1,
                              .pad_left = 1};
  compare({with_out_size(deep), 200, {.residual = ResidualFrom::kOther}});
}

TEST(Convolution, SameBitsForAnyWorkersAndAlone) {
  for (const ConvolutionOptions& options :
       {ConvolutionOptions{},
        {.activation = Activation::kGelu},
        {.norm = true},
        {.activation = Activation::kRelu, .residual = ResidualFrom::kOutput}})
    for (const int64_t kernel : {1, 3})
      for (const int64_t columns : {5, 70, 150}) {
        const ConvolutionShape s{.batch = 3,
                                 .height = 7,
                                 .width = 9,
                                 .in_features = 20,
                                 .kernel_h = kernel,
                                 .kernel_w = kernel,
                                 .pad_top = kernel / 2,
                                 .pad_left = kernel / 2};
        const ConvolutionProblem problem(with_out_size(s), columns, options);
        expect_same_bits_for_any_workers(problem);
        expect_same_bits_alone(problem, 3);
      }
}

TEST(Convolution, NoImage) {
  const ConvolutionShape s{.batch = 0, .height = 7, .width = 9, .in_features = 20, .kernel_h = 3};
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    EXPECT_TRUE(ConvolutionProblem(with_out_size(s), 5).run(implementation, 2).empty());
  }
}

// A NaN or infinity goes where its windows are, and no further.
TEST(Convolution, NanAndInfinity) {
  for (const float poison : {kNan, kInfinity})
    for (const ConvolutionOptions& options :
         {ConvolutionOptions{}, {.activation = Activation::kRelu}, {.norm = true}}) {
      const ConvolutionShape s{.batch = 2,
                               .height = 6,
                               .width = 7,
                               .in_features = 5,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .pad_top = 1,
                               .pad_left = 1};
      ConvolutionProblem problem(with_out_size(s), 20, options);
      problem.x[(2 * 7 + 3) * 5 + 4] = poison;  // in the first image
      const std::vector<double> y = problem.run(reference(), 1);
      for (int64_t i = 0; i < problem.outputs(); ++i) {
        const int64_t row = i / 20 / 7, column = i / 20 % 7;
        const bool reached = row >= 1 && row <= 3 && column >= 2 && column <= 4;
        EXPECT_TRUE(reached || std::isfinite(y[i]));
      }
      compare(problem);
    }
}

// What lies outside is 0, and 0 times infinity is NaN.
TEST(Convolution, InfiniteWeight) {
  const ConvolutionShape s{.height = 3,
                           .width = 4,
                           .in_features = 2,
                           .kernel_h = 3,
                           .kernel_w = 3,
                           .pad_top = 1,
                           .pad_left = 1};
  ConvolutionProblem problem(with_out_size(s), 4);
  problem.weight[1] = kInfinity;  // of the top left tap
  compare(problem);
}

}  // namespace
}  // namespace qna::kernels::testing
