// The fused layer of every implementation and dtype against the reference: alone, and as a block of
// a network wants it, with a norm before, a residual behind and weights that were packed before.
#include "qna/kernels/qna_layer.h"

#include <array>

#include "qna/kernels/qna_layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

template <typename T>
struct QnALayer {
  using Problem = QnALayerProblem<T>;
  static constexpr bool kFloat = std::is_same_v<T, float>;

  // Every choice of biases, tap weights and mask.
  static void options(const auto& visit, const WindowRow& row) {
    for (int choice = 0; choice < 32; ++choice) {
      QnALayerOptions options = layer_options(row);
      options.value_bias = (choice & 1) != 0;
      options.out_bias = (choice & 2) != 0;
      options.bias = (choice & 4) != 0;
      options.tap_weights = (choice & 8) != 0;
      options.mask = (choice & 16) != 0;
      visit(row.what, Problem(row.shape, options));
    }
  }

  // Every choice of norm, residual and packed weights.
  static void blocks(const auto& visit, const WindowRow& row) {
    for (const bool norm : {false, true})
      for (const Residual residual :
           {Residual::kNone, Residual::kOther, Residual::kInput, Residual::kOutput})
        for (const bool packed : {false, true}) {
          QnALayerOptions options = layer_options(row);
          options.norm = norm, options.residual = residual, options.packed = packed;
          const Problem problem(row.shape, options);
          const bool like_input = problem.out_count() == static_cast<int64_t>(problem.x.size());
          if (residual == Residual::kInput && (!like_input || row.upsample > 1)) continue;
          visit(row.what, problem);
        }
  }

  static void near(const auto& visit) {
    for (const WindowRow& row : kWindowRows) {
      // 16 bits are about loading and storing, wide maps about strips.
      if (kFloat && row.shape.width < 100) options(visit, row);
      blocks(visit, row);
    }
    RandomShapes random(kFloat ? 1997 : 17);
    for (int round = 0; round < (kFloat ? 250 : 120); ++round) {
      const WindowShape shape = random.shape();
      visit("random", Problem(shape, random_layer_options(random, shape, 70, round)));
    }
    RandomShapes random_blocks(2022);
    for (int round = 0; round < 60; ++round) {
      const WindowShape shape = random_blocks.shape();
      QnALayerOptions options = random_layer_options(random_blocks, shape, 70, round);
      options.norm = true;
      options.residual = random_blocks.coin() ? Residual::kOther : Residual::kOutput;
      options.packed = random_blocks.coin();
      visit("random block", Problem(shape, options));
    }
    const Map small = Map(1, 3, 7, 3, 3, 2).padded();
    for (int64_t features = 1; features <= 70; ++features) {
      visit("feature tail",
            Problem(small, {.in_features = features, .out_features = 71 - features}));
      visit("feature tail",
            Problem(small, {.in_features = 4, .out_features = features, .mask = true}));
    }
    if (kFloat) {
      visit("many features",
            Problem(Map(1, 4, 6, 50, 16, 2).padded(), {.in_features = 800, .out_features = 790}));
    }
    // Wide maps are cut into strips of columns, whose number depends on the window's rows and the
    // features; few rows leave strips without a step in between.
    for (int64_t height = 1; height <= 5; ++height)
      for (const int64_t kernel : {3, 7})
        for (const int64_t stride : {1, 3}) {
          visit("strips",
                Problem(
                    Map(1, height, 700, 4, 2, 2).kernel(kernel, kernel).stride(1, stride).padded(),
                    {.in_features = 3, .out_features = 3, .mask = height % 2 == 0}));
        }
    visit("up-sampling from strips", Problem(Map(1, 3, 700, 3, 3).padded(),
                                             {.in_features = 2, .out_features = 3, .upsample = 2}));
    visit("strips that lie in the padding altogether",
          Problem(Map(1, 2, 40, 16, 8, 4).kernel(5, 5).padding(2, 2, 600, 700),
                  {.in_features = 2, .out_features = 3}));
    for (const int64_t width : {1, 3, 20, 64, 65})
      for (const int64_t stride : {1, 2, 4}) {
        visit("tall", Problem(Map(1, 150, width, 2, 3, 2).stride(stride, 1).padded(),
                              {.in_features = 3, .out_features = 5}));
      }
    // Scores that the shared exponentials cannot hold.
    for (const float scale : {30.0f, 100.0f, 1e4f})
      for (const int64_t upsample : {1, 2}) {
        visit("large scores",
              Problem(Map(1, 6, 11, 5, 3, 3).padded(),
                      {.in_features = 4, .upsample = upsample, .score_scale = scale}));
      }
  }

  static void bits(const auto& visit) {
    for (const WindowRow& row : kBandRows) visit(row.what, Problem(row.shape, layer_options(row)));
    visit("images", Problem(Map(5, 8, 13, 5, 3, 3).padded(),
                            {.in_features = 6, .out_features = 5, .mask = true}));
  }

  static void masked(const auto& visit) {
    visit("masked", Problem(Map(1, 6, 11, 5, 3, 2).padded(), {.mask = true}));
  }

  static Problem nothing() { return {Map(0, 4, 4), {}}; }
};

using QnALayerTypes = ::testing::Types<QnALayer<float>, QnALayer<BFloat16>, QnALayer<Float16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(QnALayer, Operator, QnALayerTypes);
INSTANTIATE_TYPED_TEST_SUITE_P(QnALayer, MaskedOperator, QnALayerTypes);

template <typename T>
class QnALayerBlock : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(QnALayerBlock, StorageTypes);

// The same bits packed or not, in place or not, for any number of workers.
TYPED_TEST(QnALayerBlock, SameBitsPackedAndInPlace) {
  for (const WindowRow& row : kWindowRows) {
    QnALayerOptions options = layer_options(row);
    options.norm = true;
    options.residual = Residual::kOther;
    const QnALayerProblem<TypeParam> plain(row.shape, options);
    QnALayerProblem<TypeParam> packed = plain, in_place = plain;
    packed.options.packed = in_place.options.packed = true;
    in_place.options.residual = Residual::kOutput;
    SCOPED_TRACE(row.what);
    for_each_simd([&] {
      const Results one = plain.run();
      for (const int workers : {1, 2, 3}) {
        EXPECT_TRUE(same_bits(packed.run(workers), one)) << packed.text() << workers << " workers";
        EXPECT_TRUE(same_bits(in_place.run(workers), one)) << in_place.text() << workers;
      }
    });
  }
}

// Packed for one map, used on others: the same bits as without.
TYPED_TEST(QnALayerBlock, PackedWeightsServeAllMaps) {
  for (const WindowRow& row : kWindowRows)
    for (const float bias_scale : {1.0f, 30.0f}) {  // 30: too far apart for shared exponentials
      SCOPED_TRACE(fmt::format("{}, bias scale {}", row.what, bias_scale));
      QnALayerProblem<TypeParam> packed_for(row.shape, layer_options(row));
      for (float& cell : packed_for.bias) cell *= bias_scale;
      for (const auto& [batch, height, width] :
           {std::array<int64_t, 3>{1, 5, 9}, {3, 8, 7}, {2, 1, 40}, {1, 30, 3}}) {
        WindowShape shape = row.shape;
        shape.batch = batch, shape.height = height, shape.width = width;
        // The window must fit.
        if (shape.span_h() > height + shape.pad_top + shape.pad_bottom) continue;
        if (shape.span_w() > width + shape.pad_left + shape.pad_right) continue;
        QnALayerProblem<TypeParam> problem(shape, layer_options(row));
        const QnALayerProblem<TypeParam> map = problem;
        problem = packed_for;  // the same weights, another map
        problem.shape = map.shape;
        problem.x = map.x;
        problem.mask = map.mask;
        for_each_implementation([&] {
          ThreadRuntime runtime;
          const PackedWeights packed = pack_qna_layer<TypeParam>(packed_for.args(), runtime);
          EXPECT_TRUE(same_bits(
              problem.run(1, [&](QnALayerArgs<TypeParam>& args) { use_packed(args, packed); }),
              problem.run()))
              << problem.text();
        });
      }
    }
}

// Pixels far from 0 beside their spread: the norm loses nothing, as in dense_test.cc.
TEST(QnALayerNorm, PixelsFarFromZero) {
  QnALayerProblem<float> problem(Map(1, 7, 30, 4, 4, 2).padded(),
                                 {.in_features = 45, .out_features = 10, .norm = true});
  for (float& cell : problem.x) cell = 1e4f + 0.01f * cell;
  compare_all(problem);
}

TEST(QnALayerNorm, ConstantPixelsAreZero) {
  QnALayerProblem<float> problem(Map(1, 7, 30, 4, 4, 2).padded(),
                                 {.in_features = 45, .out_features = 10, .norm = true});
  QnALayerProblem<float> zero = problem;
  zero.options.norm = false;
  for (int64_t i = 0; i < 7 * 30 * 45; ++i) {
    problem.x[i] = 0.1f * static_cast<float>(i / 45);
    zero.x[i] = 0;
  }
  for_each_simd([&] { EXPECT_TRUE(same_bits(problem.run(), zero.run())); });
}

// A block takes its epsilon, not the default.
TEST(QnALayerNorm, Epsilon) {
  for (const float epsilon : {1e-8f, 1e-4f, 1.0f}) {
    QnALayerProblem<float> problem(Map(1, 4, 6, 4, 4, 2).padded(),
                                   {.norm = true, .epsilon = epsilon});
    for (float& cell : problem.x) cell *= 1e-2f;
    compare_all(problem);
  }
}

TEST(QnALayerPacked, WeightsKeptAsBFloat16) {
  for (const WindowRow& row : kWindowRows) {
    QnALayerOptions options = layer_options(row);
    options.packed = true;
    QnALayerProblem<float> kept(row.shape, options), rounded = kept;
    kept.options.weight_type = WeightType::kBFloat16;
    for (auto* weight : {&rounded.score_weight, &rounded.value_weight, &rounded.out_weight}) {
      round_to_bfloat16(*weight);
    }
    SCOPED_TRACE(row.what);
    for_each_implementation([&] {
      EXPECT_TRUE(same_bits(kept.run(), rounded.run()));
      EXPECT_TRUE(same_bits(kept.run(3), rounded.run()));
    });
  }
}

// The MLP on each row of outputs gives the same bits as one over the whole map afterwards.
TEST(QnALayerWithMlp, OnTheOutputs) {
  for (const WindowRow& row : kWindowRows) {
    if (row.upsample > 1) continue;
    const QnALayerProblem<float> problem(row.shape, layer_options(row));
    const int64_t features = row.out_features;
    const int64_t hidden = 3 * features;
    const std::vector<float> up = normal_floats(features * hidden, 3);
    const std::vector<float> down = normal_floats(features * hidden, 4);
    SCOPED_TRACE(row.what);
    for_each_implementation([&] {
      for (const int workers : {1, 2, 3}) {
        ThreadRuntime runtime(workers);
        const PackedWeights expand =
            pack_matrix({features, hidden, up.data(), hidden, 1, nullptr}, runtime);
        const PackedWeights contract =
            pack_matrix({hidden, features, down.data(), features, 1, nullptr}, runtime);
        const QnALayerMlp second_half{&expand, &contract, Activation::kGeluTanh, {.wanted = true}};
        const std::vector<double> first_half = problem.run(workers).cells();
        std::vector<float> y(first_half.begin(), first_half.end());
        mlp({.rows = static_cast<int64_t>(y.size()) / features,
             .x = y.data(),
             .expand = &expand,
             .contract = &contract,
             .y = y.data()},
            runtime);
        const Results joined =
            problem.run(workers, [&](QnALayerArgs<float>& args) { args.mlp = &second_half; });
        EXPECT_TRUE(same_bits(joined.cells(), {y.begin(), y.end()})) << workers << " workers";
      }
    });
  }
}

}  // namespace
}  // namespace qna::kernels::testing
