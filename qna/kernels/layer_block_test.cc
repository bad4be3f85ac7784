// The layer as a block of a network wants it: with a norm before, a residual behind, and weights
// that were packed before.
#include <array>

#include "qna/kernels/layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

using testing::text;

enum class ResidualFrom { kNowhere, kOther, kInput, kOutput };

struct BlockOptions {
  bool norm = false;
  ResidualFrom residual = ResidualFrom::kNowhere;
  bool packed = false;
};

std::string text(const BlockOptions& o) {
  return fmt::format("norm {}, residual {}, packed {}", o.norm, static_cast<int>(o.residual),
                     o.packed);
}

// Weights that must not be read do not exist.
template <typename T>
void use_packed(LayerArgs<T>& args, const PackedWeights& packed) {
  args.packed = &packed;
  args.score_weight = args.value_weight = args.out_weight = nullptr;
  args.value_bias = args.out_bias = args.bias = args.tap_weights = nullptr;
}

template <typename T>
struct BlockProblem {
  BlockProblem(const WindowShape& shape, const LayerOptions& options) : layer(shape, options) {
    for (const float cell : normal_floats(layer.out_count(), 7)) {
      residual.push_back(from_float<T>(cell));
    }
  }

  std::vector<double> run(const Implementation& implementation, const BlockOptions& options,
                          int workers = 1) const {
    const KernelTable<T>& kernels = kernels_of<T>(implementation);
    ThreadRuntime runtime(workers);
    PackedWeights packed;
    if (options.packed) packed = kernels.pack_layer(layer.args(), runtime);
    return layer.run(kernels.layer, workers, [&](LayerArgs<T>& args) {
      args.norm.wanted = options.norm;
      if (options.residual == ResidualFrom::kOther) args.residual = residual.data();
      if (options.residual == ResidualFrom::kInput) args.residual = args.x;
      if (options.residual == ResidualFrom::kOutput) {
        std::copy(residual.begin(), residual.end(), args.y);
        args.residual = args.y;
      }
      if (options.packed) use_packed(args, packed);
    });
  }

  // The same numbers in float32.
  BlockProblem<float> wide() const {
    BlockProblem<float> wide(layer.shape, layer.options);
    wide.layer.x = widen(layer.x);
    wide.residual = widen(residual);
    return wide;
  }

  bool like_input() const {
    return layer.out_count() == static_cast<int64_t>(layer.x.size()) && layer.options.upsample == 1;
  }

  LayerProblem<T> layer;
  std::vector<T> residual;
};

template <typename T>
void compare_all(const BlockProblem<T>& problem, const BlockOptions& options) {
  const std::vector<double> expected =
      problem.wide().run(implementations().front(), {options.norm, options.residual});
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    SCOPED_TRACE(fmt::format("{} {} {} {}", implementation.name, text(options),
                             text(problem.layer.shape), text(problem.layer.options)));
    expect_rounded<T>(problem.run(implementation, options), expected, "y");
  }
}

struct Row {
  const char* what;
  WindowShape shape;
  LayerOptions options;
};

const Row kRows[] = {
    {"one pixel, one feature",
     {.kernel_h = 1, .kernel_w = 1},
     {.in_features = 1, .out_features = 1}},
    {"the usual layer",
     padded({.batch = 2, .height = 6, .width = 13, .heads = 8, .head_dim = 8, .queries = 2}),
     {.in_features = 64, .out_features = 64}},
    {"window of 7, heads that fill no vector",
     padded({.height = 9,
             .width = 10,
             .heads = 3,
             .head_dim = 5,
             .queries = 2,
             .kernel_h = 7,
             .kernel_w = 7}),
     {.in_features = 21, .out_features = 21}},
    {"mask, no bias of any kind",
     padded({.batch = 2, .height = 7, .width = 9, .heads = 5, .head_dim = 3, .queries = 3}),
     {.in_features = 7,
      .out_features = 7,
      .value_bias = false,
      .out_bias = false,
      .bias = false,
      .tap_weights = false,
      .mask = true}},
    {"down-sampling",
     padded({.batch = 2,
             .height = 11,
             .width = 14,
             .heads = 6,
             .head_dim = 5,
             .queries = 2,
             .stride_h = 2,
             .stride_w = 2}),
     {.in_features = 16, .out_features = 30}},
    {"down-sampling, window of 7",
     padded({.height = 15,
             .width = 20,
             .heads = 1,
             .head_dim = 11,
             .queries = 2,
             .kernel_h = 7,
             .kernel_w = 7,
             .stride_h = 3,
             .stride_w = 2}),
     {.in_features = 33, .out_features = 9}},
    {"up-sampling by 2",
     padded({.batch = 2, .height = 5, .width = 9, .heads = 3, .head_dim = 6}),
     {.in_features = 12, .out_features = 10, .upsample = 2}},
    {"up-sampling by 3 with stride",
     padded({.height = 7, .width = 11, .heads = 2, .head_dim = 9, .stride_h = 2, .stride_w = 3}),
     {.in_features = 7, .out_features = 17, .upsample = 3}},
    // More pixels than are normalised or converted at a time.
    {"long rows",
     padded({.height = 3, .width = 131, .heads = 4, .head_dim = 4, .queries = 2}),
     {.in_features = 20, .out_features = 20}},
    {"strips of columns",
     padded({.height = 4, .width = 700, .heads = 4, .head_dim = 2, .queries = 2}),
     {.in_features = 5, .out_features = 5}},
    {"strips, up-sampled",
     padded({.height = 2, .width = 700, .heads = 3, .head_dim = 3}),
     {.in_features = 2, .out_features = 3, .upsample = 2}},
};

template <typename T>
class LayerBlock : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(LayerBlock, StorageTypes);

// Tolerance: see expect_rounded. A norm's roundings are as small as a product's.
TYPED_TEST(LayerBlock, NormResidualAndPackedWeights) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.what);
    const BlockProblem<TypeParam> problem(row.shape, row.options);
    for (const bool norm : {false, true})
      for (const ResidualFrom residual : {ResidualFrom::kNowhere, ResidualFrom::kOther,
                                          ResidualFrom::kInput, ResidualFrom::kOutput})
        for (const bool packed : {false, true}) {
          if (residual == ResidualFrom::kInput && !problem.like_input()) continue;
          compare_all(problem, {norm, residual, packed});
          if (this->HasFailure()) return;
        }
  }
}

TYPED_TEST(LayerBlock, RandomShapes) {
  RandomProblems random(2022);
  for (int round = 0; round < 60 && !this->HasFailure(); ++round) {
    const WindowShape shape = random.shape();
    const BlockProblem<TypeParam> problem(shape,
                                          {.in_features = random.between(1, 70),
                                           .out_features = random.between(1, 70),
                                           .upsample = shape.separate ? random.between(2, 3) : 1,
                                           .value_bias = random.coin(),
                                           .out_bias = random.coin(),
                                           .bias = random.coin(),
                                           .tap_weights = random.coin(),
                                           .mask = random.coin(),
                                           .seed = static_cast<uint32_t>(round + 1)});
    compare_all(problem, {.norm = true,
                          .residual = random.coin() ? ResidualFrom::kOther : ResidualFrom::kOutput,
                          .packed = random.coin()});
  }
}

TYPED_TEST(LayerBlock, SameBitsForAnyNumberOfWorkers) {
  for (const Row& row : kRows) {
    const BlockProblem<TypeParam> problem(row.shape, row.options);
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(fmt::format("{} {}", implementation->name, row.what));
      const std::vector<double> one =
          problem.run(*implementation, {.norm = true, .residual = ResidualFrom::kOther});
      for (const ResidualFrom residual : {ResidualFrom::kOther, ResidualFrom::kOutput})
        for (const int workers : {1, 2, 3}) {
          EXPECT_EQ(one, problem.run(*implementation,
                                     {.norm = true, .residual = residual, .packed = true}, workers))
              << workers << " workers";
        }
    }
  }
}

// Packed for one map, used on others: the same bits as without.
TYPED_TEST(LayerBlock, PackedWeightsServeAllMaps) {
  for (const Row& row : kRows)
    for (const float bias_scale : {1.0f, 30.0f}) {  // 30: too far apart for shared exponentials
      SCOPED_TRACE(fmt::format("{}, bias scale {}", row.what, bias_scale));
      LayerProblem<TypeParam> packed_for(row.shape, row.options);
      for (float& cell : packed_for.bias) cell *= bias_scale;
      for (const Implementation& implementation : implementations()) {
        if (!implementation.supported) continue;
        ThreadRuntime runtime;
        const PackedWeights packed =
            kernels_of<TypeParam>(implementation).pack_layer(packed_for.args(), runtime);
        for (const auto& [batch, height, width] :
             {std::array<int64_t, 3>{1, 5, 9}, {3, 8, 7}, {2, 1, 40}, {1, 30, 3}}) {
          WindowShape shape = row.shape;
          shape.batch = batch;
          shape.height = height;
          shape.width = width;
          // The same weights, another map.
          LayerProblem<TypeParam> problem = packed_for;
          const LayerProblem<TypeParam> map(shape, row.options);
          problem.shape = map.shape;
          problem.x = map.x;
          problem.mask = map.mask;
          EXPECT_EQ(problem.run(implementation, 1,
                                [&](LayerArgs<TypeParam>& args) { use_packed(args, packed); }),
                    problem.run(implementation))
              << implementation.name << " " << text(shape);
        }
      }
    }
}

// Pixels far from 0 beside their spread: the norm loses nothing, as in dense_test.cc.
TEST(LayerBlockNorm, PixelsFarFromZero) {
  BlockProblem<float> problem(
      padded({.height = 7, .width = 30, .heads = 4, .head_dim = 4, .queries = 2}),
      {.in_features = 45, .out_features = 10});
  for (float& cell : problem.layer.x) cell = 1e4f + 0.01f * cell;
  compare_all(problem, {.norm = true});
}

TEST(LayerBlockNorm, ConstantPixelsAreZero) {
  BlockProblem<float> problem(
      padded({.height = 7, .width = 30, .heads = 4, .head_dim = 4, .queries = 2}),
      {.in_features = 45, .out_features = 10});
  BlockProblem<float> zero = problem;
  for (int64_t i = 0; i < 7 * 30 * 45; ++i) {
    problem.layer.x[i] = 0.1f * static_cast<float>(i / 45);
    zero.layer.x[i] = 0;
  }
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_EQ(problem.run(*implementation, {.norm = true}), zero.run(*implementation, {}))
        << implementation->name;
  }
}

// A block takes its epsilon, not the default.
TEST(LayerBlockNorm, Epsilon) {
  LayerProblem<float> problem(
      padded({.height = 4, .width = 6, .heads = 4, .head_dim = 4, .queries = 2}), {});
  for (float& cell : problem.x) cell *= 1e-2f;
  for (const float epsilon : {1e-8f, 1e-4f, 1.0f}) {
    const auto adjust = [&](LayerArgs<float>& args) { args.norm = {true, epsilon}; };
    const std::vector<double> expected = problem.run(&layer_forward_reference<float>, 1, adjust);
    for (const Implementation* implementation : simd_implementations()) {
      EXPECT_TRUE(near_by_scale(problem.run(*implementation, 1, adjust), expected, kArithmetic))
          << implementation->name << " epsilon " << epsilon;
    }
  }
}

// The MLP on each row of outputs gives the same bits as one over the whole map afterwards.
TEST(LayerWithMlp, OnTheOutputs) {
  for (const Row& row : kRows) {
    if (row.options.upsample > 1) continue;
    const BlockProblem<float> problem(row.shape, row.options);
    const int64_t features = row.options.out_features;
    const int64_t hidden = 3 * features;
    const std::vector<float> up = normal_floats(features * hidden, 3);
    const std::vector<float> down = normal_floats(features * hidden, 4);
    for (const Implementation& implementation : implementations()) {
      if (!implementation.supported) continue;
      for (const int workers : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {} workers", implementation.name, row.what, workers));
        ThreadRuntime runtime(workers);
        const PackedWeights expand =
            implementation.pack_matrix({features, hidden, up.data(), hidden, 1, nullptr}, runtime);
        const PackedWeights contract = implementation.pack_matrix(
            {hidden, features, down.data(), features, 1, nullptr}, runtime);
        const LayerMlp mlp{&expand, &contract, Activation::kGeluTanh, {.wanted = true}};
        const auto& layer = kernels_of<float>(implementation).layer;
        const std::vector<double> plain = problem.layer.run(layer, workers);
        std::vector<float> y(plain.begin(), plain.end());
        implementation.mlp({.rows = static_cast<int64_t>(y.size()) / features,
                            .x = y.data(),
                            .expand = &expand,
                            .contract = &contract,
                            .y = y.data()},
                           runtime);
        const std::vector<double> joined =
            problem.layer.run(layer, workers, [&](LayerArgs<float>& args) { args.mlp = &mlp; });
        EXPECT_EQ(joined, std::vector<double>(y.begin(), y.end()));
      }
    }
  }
}

}  // namespace
}  // namespace qna::kernels::testing
