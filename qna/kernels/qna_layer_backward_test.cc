// The layer's fused backward pass of every implementation: against the reference, the reference
// against finite differences in float64, and the same bits for any number of threads.
#include "qna/kernels/qna_layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

// Forward with `saved`, then backward.
template <typename T>
struct GradientProblem : QnALayerProblem<T> {
  using Base = QnALayerProblem<T>;
  using Base::options, Base::pixels, Base::shape, Base::table, Base::tolerance;

  GradientProblem(const WindowShape& shape_in, const QnALayerOptions& options_in)
      : Base(shape_in, options_in) {
    grad_y = random_cells<T>(Base::random, Base::out_count());
    // Sums over up to some hundred pixels of float32 products of order 1. A score is itself off by
    // 2^-23 of its size, and the softmax carries that on.
    tolerance.by_scale = 5e-5 + 16 * (options.score_scale - 1) * 0x1p-23;
  }

  Results run(int workers = 1) const {
    using Output = GuardedOutput<Table<T>>;
    const int64_t in = options.in_features, out = options.out_features;
    const int64_t features = shape.features(), scores = shape.scores();
    // NaN where a pixel was forgotten.
    std::vector<Table<T>> saved(pixels() * (features + scores), static_cast<Table<T>>(kNan));
    GuardedOutput<T> y("y", Base::out_count()), x("x", pixels() * in);
    Output score_weight("score_weight", in * scores), value_weight("value_weight", in * features),
        value_bias("value_bias", features), out_weight("out_weight", features * out),
        out_bias("out_bias", out), bias("bias", table()), tap_weights("tap_weights", table());
    ThreadRuntime runtime(workers);
    QnALayerArgs<T> layer = Base::args();
    layer.y = y.data();
    layer.residual = residual_of(options.residual, Base::residual, Base::x.data(), y.data());
    layer.saved = saved.data();
    qna_layer_forward<T>(layer, runtime);
    qna_layer_backward<T>({.shape = shape,
                           .in_features = in,
                           .out_features = out,
                           .upsample = options.upsample,
                           .grad_y = grad_y.data(),
                           .x = layer.x,
                           .saved = saved.data(),
                           .score_weight = layer.score_weight,
                           .value_weight = layer.value_weight,
                           .out_weight = layer.out_weight,
                           .bias = layer.bias,
                           .tap_weights = layer.tap_weights,
                           .mask = layer.mask,
                           .grad_x = x.data(),
                           .grad_score_weight = score_weight.data(),
                           .grad_value_weight = value_weight.data(),
                           .grad_value_bias = options.value_bias ? value_bias.data() : nullptr,
                           .grad_out_weight = out_weight.data(),
                           .grad_out_bias = options.out_bias ? out_bias.data() : nullptr,
                           .grad_bias = bias.data(),
                           .grad_tap_weights = tap_weights.data(),
                           .norm = layer.norm,
                           .drop_factor = layer.drop_factor,
                           .residual_is_x = options.residual == Residual::kInput},
                          runtime);
    return {tolerance,
            {x.take(), y.take(), score_weight.take(), value_weight.take(),
             value_bias.take(options.value_bias ? features : 0), out_weight.take(),
             out_bias.take(options.out_bias ? out : 0), bias.take(), tap_weights.take()},
            runtime.scratch_bytes()};
  }

  GradientProblem<float> plain() const {
    GradientProblem<float> wide(shape, options);
    wide.x = widen(Base::x);
    wide.residual = widen(Base::residual);
    wide.grad_y = widen(grad_y);
    wide.mask = Base::mask;
    wide.drop_factor = Base::drop_factor;
    return wide;
  }
  void alone(int64_t) const = delete;  // gradients of weights are sums over images

  std::vector<T> grad_y;
};

template <typename T>
struct QnALayerGradients {
  using Problem = GradientProblem<T>;
  static constexpr bool kFloat = std::is_same_v<T, float>;  // blocks are in no less

  static void near(const auto& visit) {
    for (const WindowRow& row : kWindowRows) {
      QnALayerOptions options = layer_options(row);
      options.mask = row.shape.width % 2 == 0;
      visit(row.what, Problem(row.shape, options));
    }
    int turn = 0;
    for (const WindowRow& row : kStripRows) {
      if (!kFloat && row.shape.width > 300) continue;
      QnALayerOptions options = layer_options(row);
      options.mask = ++turn % 2 == 0;
      // As part of a block in turn; a factor of 0 for the first image.
      options.norm = kFloat && turn % 3 == 0;
      options.drop_factor = kFloat && row.shape.batch > 1;
      visit(row.what, Problem(row.shape, options), {1, 3});
    }
    RandomShapes random(2022);
    for (int round = 0; round < (kFloat ? 150 : 40); ++round) {
      const WindowShape shape = random.shape();
      QnALayerOptions options = random_layer_options(random, shape, 40, round);
      if (round % 10 == 9) options.score_scale = 100;
      visit("random", Problem(shape, options));
    }
    if (kFloat) {
      visit("many features",
            Problem(Map(1, 3, 5, 50, 16, 2).padded(), {.in_features = 800, .out_features = 790}));
    }
    // As the first half of a block: with a norm, factors for the images, and x added.
    RandomShapes random_blocks(2023);
    for (int round = 0; kFloat && round < 100; ++round) {
      WindowShape shape = random_blocks.shape();
      shape.separate = false;
      QnALayerOptions options = random_layer_options(random_blocks, shape, 40, round);
      options.norm = random_blocks.coin();
      options.drop_factor = random_blocks.coin();
      // Few features that are near each other are divided by a small number, and so is their error.
      options.in_features = random_blocks.between(6, 40);
      if (random_blocks.coin()) {
        shape =
            Map(shape.batch, shape.height, shape.width, shape.heads, shape.head_dim, shape.queries)
                .padded();
        options.out_features = options.in_features;
        options.residual = Residual::kInput;
      }
      visit("random block", Problem(shape, options), {1, 3});
    }
  }

  static void bits(const auto& visit) {
    // Maps that are cut into bands, with windows that reach over the cuts.
    for (const int64_t kernel : {3, 5})
      for (const int64_t stride : {1, 2})
        for (const int64_t width : {5, 70}) {
          if (!kFloat && width > 5) continue;
          Problem problem(Map(1, 67, width, 3, 4, 2).kernel(kernel, 3).stride(stride, 1).padded(),
                          {.in_features = 6,
                           .out_features = 5,
                           .mask = true,
                           .norm = kFloat && kernel == 5,
                           .drop_factor = kFloat});
          if (kFloat) problem.drop_factor = {0.75f};
          visit("bands", problem);
        }
  }

  static void masked(const auto& visit) {
    for (const bool norm : {false, kFloat}) {
      visit("masked", Problem(Map(1, 7, 9, 3, 4, 2).padded(), {.mask = true, .norm = norm}));
    }
  }

  static Problem nothing() { return {Map(0, 4, 4), {}}; }
};

using QnALayerGradientTypes =
    ::testing::Types<QnALayerGradients<float>, QnALayerGradients<BFloat16>,
                     QnALayerGradients<Float16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(QnALayerBackward, Operator, QnALayerGradientTypes);
INSTANTIATE_TYPED_TEST_SUITE_P(QnALayerBackward, MaskedOperator, QnALayerGradientTypes);

TEST(QnALayerBackward, ScratchDoesNotGrowWithTheWidth) {
  expect_scratch_bounded(
      [](const WindowShape& shape) { return GradientProblem<float>(shape, {}); });
}

// The reference itself, by central differences of its forward pass in float64.
TEST(QnALayerBackward, ReferenceAgainstFiniteDifferences) {
  struct Form {
    int64_t upsample;
    bool block;
  };
  for (const auto& [upsample, block] : {Form{1, false}, Form{2, false}, Form{1, true}}) {
    GradientProblem<double> problem(Map(block ? 2 : 1, 4, 5, 2, 2, 2).padded(),
                                    {.in_features = 3,
                                     .out_features = 3,
                                     .upsample = upsample,
                                     .mask = true,
                                     .norm = block,
                                     .residual = block ? Residual::kInput : Residual::kNone,
                                     .drop_factor = block});
    SCOPED_TRACE(problem.text());
    expect_gradients<double>(
        problem.run(),
        {{"x", &problem.x},
         {"score_weight", &problem.score_weight},
         {"value_weight", &problem.value_weight},
         {"value_bias", &problem.value_bias},
         {"out_weight", &problem.out_weight},
         {"out_bias", &problem.out_bias},
         {"bias", &problem.bias},
         {"tap_weights", &problem.tap_weights}},
        [&] { return dot(problem.QnALayerProblem<double>::run().cells(), problem.grad_y); }, 1e-5,
        {.absolute = 1e-7});
  }
}

// Their branch is not computed: 0 times infinity would be NaN.
TEST(QnALayerBackward, DroppedImagesDoNotMatter) {
  for (const bool norm : {false, true})
    // One band, several, and strips.
    for (const WindowShape& shape :
         {Map(2, 5, 9, 3, 4, 2).padded(), Map(2, 67, 9, 3, 4, 2).padded(),
          Map(2, 17, 200, 8, 12, 2).dilation(8, 1).padding(8, 8, 1, 1)}) {
      GradientProblem<float> clean(shape, {.in_features = 7, .norm = norm, .drop_factor = true});
      ASSERT_EQ(clean.drop_factor.front(), 0);
      GradientProblem<float> spoiled = clean;
      std::fill_n(spoiled.x.begin(), spoiled.x.size() / 2, kInfinity);
      for_each_implementation([&] {
        const Results results = spoiled.run(2);
        EXPECT_TRUE(same_bits(results, clean.run()));
        for (const double cell : results.cells()) ASSERT_TRUE(std::isfinite(cell));
      });
    }
}

}  // namespace
}  // namespace qna::kernels::testing
