// The layer's fused backward pass of every implementation: against the reference, the reference
// against finite differences in float64, and the same bits for any number of threads.
#include "qna/kernels/layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

// Sums over up to some hundred pixels of float32 products of order 1.
constexpr double kTolerance = 5e-5;

template <typename T>
struct Gradients {
  std::vector<double> y, x, score_weight, value_weight, value_bias, out_weight, out_bias, bias,
      tap_weights;
  bool operator==(const Gradients&) const = default;
};

template <typename T>
std::vector<double> collect(GuardedOutput<T>& cells, int64_t count) {
  std::vector<double> result = collect_rows(cells, 1, count, count);
  EXPECT_TRUE(cells.intact()) << "the backward pass wrote outside an output";
  return result;
}

// Forward with `kept`, then backward, by one table of kernels.
template <typename T>
Gradients<T> run(const LayerProblem<T>& p, const std::vector<T>& grad_y,
                 void (*forward)(const LayerArgs<T>&, Runtime&),
                 void (*backward)(const LayerBackwardArgs<T>&, Runtime&), int workers) {
  const WindowShape& s = p.shape;
  const LayerOptions& o = p.options;
  const int64_t pixels = s.batch * s.height * s.width;
  // NaN where a pixel was forgotten.
  std::vector<Table<T>> kept(pixels * (s.features() + s.scores()),
                             std::numeric_limits<Table<T>>::quiet_NaN());
  GuardedOutput<T> y(p.out_count());
  GuardedOutput<T> x(pixels * o.in_features);
  GuardedOutput<Table<T>> score_weight(o.in_features * s.scores());
  GuardedOutput<Table<T>> value_weight(o.in_features * s.features());
  GuardedOutput<Table<T>> value_bias(s.features());
  GuardedOutput<Table<T>> out_weight(s.features() * o.out_features);
  GuardedOutput<Table<T>> out_bias(o.out_features);
  GuardedOutput<Table<T>> bias(s.taps() * s.scores());
  GuardedOutput<Table<T>> tap_weights(s.taps() * s.scores());
  ThreadRuntime runtime(workers);
  LayerArgs<T> layer = p.args();
  layer.y = y.data();
  layer.kept = kept.data();
  forward(layer, runtime);
  backward({.shape = s,
            .in_features = o.in_features,
            .out_features = o.out_features,
            .upsample = o.upsample,
            .grad_y = grad_y.data(),
            .x = p.x.data(),
            .kept = kept.data(),
            .score_weight = p.score_weight.data(),
            .value_weight = p.value_weight.data(),
            .out_weight = p.out_weight.data(),
            .bias = or_null(p.bias),
            .tap_weights = or_null(p.tap_weights),
            .mask = or_null(p.mask),
            .grad_x = x.data(),
            .grad_score_weight = score_weight.data(),
            .grad_value_weight = value_weight.data(),
            .grad_value_bias = o.value_bias ? value_bias.data() : nullptr,
            .grad_out_weight = out_weight.data(),
            .grad_out_bias = o.out_bias ? out_bias.data() : nullptr,
            .grad_bias = bias.data(),
            .grad_tap_weights = tap_weights.data(),
            .norm = {.wanted = o.norm},
            .keep = or_null(p.keep),
            .residual_is_x = o.residual},
           runtime);
  return {collect(y, p.out_count()),
          collect(x, pixels * o.in_features),
          collect(score_weight, o.in_features * s.scores()),
          collect(value_weight, o.in_features * s.features()),
          collect(value_bias, o.value_bias ? s.features() : 0),
          collect(out_weight, s.features() * o.out_features),
          collect(out_bias, o.out_bias ? o.out_features : 0),
          collect(bias, s.taps() * s.scores()),
          collect(tap_weights, s.taps() * s.scores())};
}

template <typename T>
Gradients<T> run(const LayerProblem<T>& p, const std::vector<T>& grad_y,
                 const Implementation& implementation, int workers = 1) {
  const KernelTable<T>& kernels = kernels_of<T>(implementation);
  return run<T>(p, grad_y, kernels.layer, kernels.layer_backward, workers);
}

template <typename T>
void expect_near(const Gradients<T>& actual, const Gradients<T>& expected, double tolerance) {
  EXPECT_TRUE(near_by_scale(actual.y, expected.y, tolerance)) << "y";
  EXPECT_TRUE(near_by_scale(actual.x, expected.x, tolerance)) << "x";
  EXPECT_TRUE(near_by_scale(actual.score_weight, expected.score_weight, tolerance)) << "A";
  EXPECT_TRUE(near_by_scale(actual.value_weight, expected.value_weight, tolerance)) << "Wv";
  EXPECT_TRUE(near_by_scale(actual.value_bias, expected.value_bias, tolerance)) << "bv";
  EXPECT_TRUE(near_by_scale(actual.out_weight, expected.out_weight, tolerance)) << "Wo";
  EXPECT_TRUE(near_by_scale(actual.out_bias, expected.out_bias, tolerance)) << "bo";
  EXPECT_TRUE(near_by_scale(actual.bias, expected.bias, tolerance)) << "relative bias";
  EXPECT_TRUE(near_by_scale(actual.tap_weights, expected.tap_weights, tolerance)) << "tap weights";
}

template <typename T>
std::vector<T> random_gradient(LayerProblem<T>& problem) {
  std::vector<T> grad;
  for (const float g : problem.template normal<float>(problem.out_count(), 1)) {
    grad.push_back(from_float<T>(g));
  }
  return grad;
}

LayerOptions random_options(RandomProblems& random, const WindowShape& shape, int round) {
  return {.in_features = random.between(1, 40),
          .out_features = random.between(1, 40),
          .upsample = shape.separate ? random.between(2, 3) : 1,
          .value_bias = random.coin(),
          .out_bias = random.coin(),
          .bias = random.coin(),
          .tap_weights = random.coin(),
          .mask = random.coin(),
          .score_scale = round % 10 == 9 ? 100.0f : 1.0f,
          .seed = static_cast<uint32_t>(round + 1)};
}

TEST(LayerBackward, RandomShapes) {
  RandomProblems random(2022);
  for (int round = 0; round < 150 && !HasFailure(); ++round) {
    const WindowShape shape = random.shape();
    const LayerOptions options = random_options(random, shape, round);
    LayerProblem<float> problem(shape, options);
    const std::vector<float> grad_y = random_gradient(problem);
    const Gradients<float> expected = run<float>(problem, grad_y, &layer_forward_reference<float>,
                                                 &layer_backward_reference<float>, 1);
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + text(problem.shape) + " " +
                   text(options));
      // A score is itself off by 2^-23 of its size, and the softmax carries that on.
      const double tolerance = kTolerance + 16 * (options.score_scale - 1) * 0x1p-23;
      expect_near(run(problem, grad_y, *implementation), expected, tolerance);
    }
  }
}

// As the first half of a block: with a norm, factors for the images, and x added.
TEST(LayerBackward, BlocksOfRandomShapes) {
  RandomProblems random(2023);
  for (int round = 0; round < 100 && !HasFailure(); ++round) {
    WindowShape shape = random.shape();
    shape.separate = false;
    LayerOptions options = random_options(random, shape, round);
    options.score_scale = 1;
    options.norm = random.coin();
    options.keep = random.coin();
    // Few features that are near each other are divided by a small number, and so is their error.
    options.in_features = random.between(6, 40);
    if (random.coin()) {
      shape = padded({.batch = shape.batch,
                      .height = shape.height,
                      .width = shape.width,
                      .heads = shape.heads,
                      .head_dim = shape.head_dim,
                      .queries = shape.queries});
      options.out_features = options.in_features;
      options.residual = true;
    }
    LayerProblem<float> problem(shape, options);
    const std::vector<float> grad_y = random_gradient(problem);
    const Gradients<float> expected = run<float>(problem, grad_y, &layer_forward_reference<float>,
                                                 &layer_backward_reference<float>, 1);
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + text(problem.shape) + " " +
                   text(options));
      const Gradients<float> one = run(problem, grad_y, *implementation);
      expect_near(one, expected, kTolerance);
      EXPECT_TRUE(run(problem, grad_y, *implementation, 3) == one) << "3 threads";
    }
  }
}

// Maps that are cut into bands, with windows that reach over the cuts: several sizes, any number of
// threads, always the same bits.
TEST(LayerBackward, BandsAndThreads) {
  for (const int64_t kernel : {3, 5})
    for (const int64_t stride : {1, 2})
      for (const int64_t width : {5, 70}) {
        const WindowShape shape{.height = 67,
                                .width = width,
                                .heads = 3,
                                .head_dim = 4,
                                .queries = 2,
                                .kernel_h = kernel,
                                .kernel_w = 3,
                                .stride_h = stride,
                                .pad_top = kernel / 2,
                                .pad_bottom = kernel / 2,
                                .pad_left = 1,
                                .pad_right = 1};
        LayerProblem<float> problem(
            shape,
            {.in_features = 6, .out_features = 5, .mask = true, .norm = kernel == 5, .keep = true});
        problem.keep = {0.75f};
        const std::vector<float> grad_y = random_gradient(problem);
        const Gradients<float> expected = run<float>(
            problem, grad_y, &layer_forward_reference<float>, &layer_backward_reference<float>, 1);
        for (const Implementation* implementation : simd_implementations()) {
          SCOPED_TRACE(std::string(implementation->name) + " " + text(shape));
          const Gradients<float> one = run(problem, grad_y, *implementation, 1);
          expect_near(one, expected, kTolerance);
          EXPECT_TRUE(run(problem, grad_y, *implementation, 2) == one) << "2 threads";
          EXPECT_TRUE(run(problem, grad_y, *implementation, 3) == one) << "3 threads";
        }
      }
}

// NaN and infinity in masked pixels reach no gradient.
TEST(LayerBackward, MaskedPixelsDoNotMatter) {
  const WindowShape shape{.height = 7,
                          .width = 9,
                          .heads = 3,
                          .head_dim = 4,
                          .queries = 2,
                          .pad_top = 1,
                          .pad_bottom = 1,
                          .pad_left = 1,
                          .pad_right = 1};
  for (const bool norm : {false, true}) {
    LayerProblem<float> clean(shape, {.mask = true, .norm = norm});
    const std::vector<float> grad_y = random_gradient(clean);
    LayerProblem<float> problem = clean;
    for (size_t n = 0; n < problem.mask.size(); ++n) {
      if (problem.mask[n] == 0) std::fill_n(problem.x.begin() + n * 8, 8, std::nanf(""));
    }
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(implementation->name);
      EXPECT_TRUE(run(problem, grad_y, *implementation) == run(clean, grad_y, *implementation));
    }
  }
}

// The reference itself, by central differences of its forward pass in float64.
TEST(LayerBackward, ReferenceAgainstFiniteDifferences) {
  struct Form {
    int64_t upsample;
    bool block;
  };
  for (const auto& [upsample, block] : {Form{1, false}, Form{2, false}, Form{1, true}}) {
    const WindowShape shape{.batch = block ? 2 : 1,
                            .height = 4,
                            .width = 5,
                            .heads = 2,
                            .head_dim = 2,
                            .queries = 2,
                            .pad_top = 1,
                            .pad_bottom = 1,
                            .pad_left = 1,
                            .pad_right = 1};
    LayerProblem<double> problem(shape, {.in_features = 3,
                                         .out_features = 3,
                                         .upsample = upsample,
                                         .mask = true,
                                         .norm = block,
                                         .keep = block,
                                         .residual = block});
    const std::vector<double> grad_y = random_gradient(problem);
    const Gradients<double> exact = run<double>(problem, grad_y, &layer_forward_reference<double>,
                                                &layer_backward_reference<double>, 1);
    const auto loss = [&] {
      const std::vector<double> y = problem.run(&layer_forward_reference<double>);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * grad_y[i];
      return sum;
    };
    const auto compare = [&](std::vector<double>& cells, const std::vector<double>& gradient,
                             const char* name) {
      ASSERT_EQ(cells.size(), gradient.size()) << name;
      for (size_t i = 0; i < cells.size(); ++i) {
        constexpr double kStep = 1e-5;  // error of order kStep^2
        const double before = cells[i];
        cells[i] = before + kStep;
        const double up = loss();
        cells[i] = before - kStep;
        const double down = loss();
        cells[i] = before;
        ASSERT_NEAR((up - down) / (2 * kStep), gradient[i], 1e-7) << name << " " << i;
      }
    };
    compare(problem.x, exact.x, "x");
    compare(problem.score_weight, exact.score_weight, "score_weight");
    compare(problem.value_weight, exact.value_weight, "value_weight");
    compare(problem.value_bias, exact.value_bias, "value_bias");
    compare(problem.out_weight, exact.out_weight, "out_weight");
    compare(problem.out_bias, exact.out_bias, "out_bias");
    compare(problem.bias, exact.bias, "bias");
    compare(problem.tap_weights, exact.tap_weights, "tap_weights");
  }
}

}  // namespace
}  // namespace qna::kernels::testing
