// dense and mlp of every implementation against the reference: every tail of their tiles, every
// choice of what stands before and behind the product.
#include "qna/kernels/dense.h"

#include <array>

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr Activation kActivations[] = {Activation::kNone, Activation::kGeluTanh, Activation::kGelu,
                                       Activation::kRelu, Activation::kSilu};

// Results are sums of `terms` products, of order 1 (the largest of thousands about 5). Each
// addition rounds the sum so far by at most 2^-24 of it; a norm before and an activation behind
// add a few such roundings each.
double tolerance(int64_t terms) { return 5 * static_cast<double>(terms + 16) * 0x1p-24; }

const Implementation& reference() { return implementations().front(); }

enum class ResidualFrom { kNowhere, kOther, kOutput };

struct DenseOptions {
  bool bias = false;
  bool norm = false;
  Activation activation = Activation::kNone;
  ResidualFrom residual = ResidualFrom::kNowhere;
};

std::string text(const DenseOptions& o) {
  return fmt::format("bias {}, norm {}, activation {}, residual {}", o.bias, o.norm,
                     static_cast<int>(o.activation), static_cast<int>(o.residual));
}

std::vector<DenseOptions> all_options() {
  std::vector<DenseOptions> all;
  for (const bool bias : {false, true})
    for (const bool norm : {false, true})
      for (const Activation activation : kActivations)
        for (const ResidualFrom residual :
             {ResidualFrom::kNowhere, ResidualFrom::kOther, ResidualFrom::kOutput}) {
          all.push_back({bias, norm, activation, residual});
        }
  return all;
}

// How a weight matrix lies in memory: [in, out] or [out, in], rows `gap` elements apart.
struct WeightOrder {
  bool out_first = false;
  int64_t gap = 0;
};

struct Weights {
  // By fan-in, so that the products are of order 1.
  Weights(int64_t inner_in, int64_t columns_in, uint32_t seed, WeightOrder order = {})
      : inner(inner_in), columns(columns_in), bias(normal_floats(columns, seed + 1)) {
    const int64_t rows = order.out_first ? columns : inner;
    const int64_t row = order.out_first ? inner : columns;
    inner_stride = order.out_first ? 1 : row + order.gap;
    column_stride = order.out_first ? row + order.gap : 1;
    const std::vector<float> cells =
        normal_floats(inner * columns, seed, 1 / std::sqrt(static_cast<float>(inner)));
    // NaN between the rows; ends with the last element.
    weight.assign((rows - 1) * (row + order.gap) + row, kNan);
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t c = 0; c < columns; ++c) {
        weight[k * inner_stride + c * column_stride] = cells[k * columns + c];
      }
  }

  PackedWeights pack(const Implementation& implementation, bool with_bias, Runtime& runtime) const {
    return implementation.pack_matrix({.inner = inner,
                                       .columns = columns,
                                       .weight = weight.data(),
                                       .inner_stride = inner_stride,
                                       .column_stride = column_stride,
                                       .bias = with_bias ? bias.data() : nullptr},
                                      runtime);
  }

  int64_t inner, columns;
  int64_t inner_stride, column_stride;
  std::vector<float> weight, bias;
};

struct DenseProblem {
  DenseProblem(int64_t rows_in, int64_t inner, int64_t columns, WeightOrder order = {})
      : rows(rows_in),
        weights(inner, columns, 1, order),
        x(normal_floats(rows * inner, 3)),
        residual(normal_floats(rows * columns, 4)) {}

  std::vector<double> run(const Implementation& implementation, const DenseOptions& options,
                          int workers = 1) const {
    ThreadRuntime runtime(workers);
    const PackedWeights packed = weights.pack(implementation, options.bias, runtime);
    return collect_guarded<float>(rows * weights.columns, [&](float* y) {
      const float* from = nullptr;
      if (options.residual == ResidualFrom::kOther) from = residual.data();
      if (options.residual == ResidualFrom::kOutput) {
        from = std::copy(residual.begin(), residual.end(), y) - residual.size();
      }
      implementation.dense({.rows = rows,
                            .x = x.data(),
                            .norm = {.wanted = options.norm},
                            .weights = &packed,
                            .activation = options.activation,
                            .residual = from,
                            .y = y},
                           runtime);
    });
  }

  DenseProblem row(int64_t r) const {
    DenseProblem one = *this;
    one.rows = 1;
    one.x.assign(x.begin() + r * weights.inner, x.begin() + (r + 1) * weights.inner);
    one.residual.assign(residual.begin() + r * weights.columns,
                        residual.begin() + (r + 1) * weights.columns);
    return one;
  }

  int64_t rows;
  Weights weights;
  std::vector<float> x, residual;
};

std::vector<double> row_of(const std::vector<double>& cells, int64_t row, int64_t columns) {
  return {cells.begin() + row * columns, cells.begin() + (row + 1) * columns};
}

void compare_all(const DenseProblem& problem, const DenseOptions& options) {
  const std::vector<double> expected = problem.run(reference(), options);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(fmt::format("{} {} x {} x {} {}", implementation->name, problem.rows,
                             problem.weights.inner, problem.weights.columns, text(options)));
    EXPECT_TRUE(
        near(problem.run(*implementation, options), expected, tolerance(problem.weights.inner)));
  }
}

TEST(Dense, EveryRowAndColumnTailWithAllOptions) {
  for (int64_t rows = 1; rows <= 20; ++rows)
    for (int64_t columns = 1; columns <= 20; ++columns) {
      const DenseProblem problem(rows, 5, columns);
      for (const DenseOptions& options : all_options()) {
        compare_all(problem, options);
        if (HasFailure()) return;
      }
    }
}

TEST(Dense, EveryInnerLength) {
  for (int64_t inner = 1; inner <= 70 && !HasFailure(); ++inner) {
    const DenseProblem problem(7, inner, 9);
    compare_all(problem, {.bias = true});
    compare_all(problem, {.norm = true});
    compare_all(problem, {.bias = true,
                          .norm = true,
                          .activation = Activation::kGeluTanh,
                          .residual = ResidualFrom::kOther});
  }
}

TEST(Dense, WeightsInEveryOrder) {
  for (const bool out_first : {false, true})
    for (const int64_t gap : {0, 1, 5})
      for (const auto& [inner, columns] :
           {std::pair<int64_t, int64_t>{1, 1}, {3, 8}, {16, 5}, {19, 33}}) {
        SCOPED_TRACE(fmt::format("out first {}, gap {}", out_first, gap));
        compare_all(DenseProblem(7, inner, columns, {out_first, gap}), {.bias = true});
      }
}

// Columns over several panels of up to 4 vectors of 16 lanes.
TEST(Dense, EveryPanelTail) {
  const std::vector<DenseOptions> options = all_options();
  for (int64_t columns = 21; columns <= 150 && !HasFailure(); ++columns) {
    const DenseProblem problem(8, 3, columns);
    compare_all(problem, {.bias = true, .residual = ResidualFrom::kOther});
    compare_all(problem, options[columns % options.size()]);
  }
}

// Rows over several chunks, which are of 24 to 96 rows.
TEST(Dense, ManyRows) {
  for (const int64_t rows : {23, 24, 25, 95, 96, 97, 193, 300}) {
    const DenseProblem problem(rows, 40, 50);
    for (const DenseOptions& options : all_options()) {
      if (options.bias) compare_all(problem, options);
      if (HasFailure()) return;
    }
  }
  for (const ResidualFrom residual : {ResidualFrom::kOther, ResidualFrom::kOutput}) {
    compare_all(
        DenseProblem(100, 700, 600),
        {.bias = true, .norm = true, .activation = Activation::kGelu, .residual = residual});
  }
}

TEST(Dense, NoRows) {
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_TRUE(DenseProblem(0, 5, 6).run(*implementation, {.norm = true}).empty());
  }
}

TEST(Dense, SameBitsForAnyNumberOfWorkers) {
  const DenseProblem problem(400, 30, 43);
  for (const Implementation* implementation : simd_implementations())
    for (const DenseOptions& options : all_options()) {
      SCOPED_TRACE(fmt::format("{} {}", implementation->name, text(options)));
      const std::vector<double> one = problem.run(*implementation, options, 1);
      EXPECT_EQ(one, problem.run(*implementation, options, 2));
      EXPECT_EQ(one, problem.run(*implementation, options, 3));
    }
}

TEST(Dense, ARowDoesNotDependOnTheOthers) {
  const DenseProblem problem(29, 35, 43);
  for (const Implementation* implementation : simd_implementations())
    for (const DenseOptions& options : all_options()) {
      SCOPED_TRACE(fmt::format("{} {}", implementation->name, text(options)));
      const std::vector<double> all = problem.run(*implementation, options);
      for (int64_t r = 0; r < problem.rows && !HasFailure(); ++r) {
        EXPECT_EQ(problem.row(r).run(*implementation, options), row_of(all, r, 43)) << "row " << r;
      }
    }
}

// What an activation makes of `values`: one row each, all columns alike.
std::vector<double> activations(const Implementation& implementation, Activation activation,
                                const std::vector<float>& values) {
  DenseProblem problem(static_cast<int64_t>(values.size()), 1, 37);
  problem.x = values;
  problem.weights.weight.assign(37, 1.0f);
  const std::vector<double> all = problem.run(implementation, {.activation = activation});
  std::vector<double> first;
  for (int64_t r = 0; r < problem.rows; ++r) {
    first.push_back(all[r * 37]);
    for (int64_t c = 0; c < 37; ++c) {
      EXPECT_TRUE(near({all[r * 37 + c]}, {first.back()}, 0)) << values[r] << " column " << c;
    }
  }
  return first;
}

TEST(Dense, ActivationsOfAnySize) {
  std::vector<float> values = {0.0f, -0.0f};
  for (const float size :
       {1e-40f, 1e-30f, 1e-10f, 1e-3f, 80.0f, 86.0f, 87.0f, 88.0f, 89.0f, 90.0f,
        103.0f, 104.0f, 105.0f, 1e3f,  1e4f,  1e10f, 1e18f, 2e19f, 1e30f, 3e38f}) {
    values.insert(values.end(), {size, -size});
  }
  for (float value = -30; value <= 30; value += 0.03125f) values.push_back(value);
  for (const Implementation* implementation : simd_implementations())
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(fmt::format("{} activation {}", implementation->name, int(activation)));
      // erf is good to 1.5e-7, of which x / 2 counts while |x| < 6: 4.5e-7. The rest is a few
      // roundings of the result, and of the exponents near 1.
      EXPECT_TRUE(near(activations(*implementation, activation, values),
                       activations(reference(), activation, values), 6e-7, 6e-7));
    }
}

TEST(Dense, InfinityAndNan) {
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(fmt::format("{} activation {}", implementation.name, int(activation)));
      EXPECT_TRUE(near(activations(implementation, activation, {1.0f, kInfinity, kNan, 0.0f}),
                       {activations(reference(), activation, {1.0f})[0], kInfinity, kNan, 0.0f},
                       1e-6));
    }
    EXPECT_EQ(activations(implementation, Activation::kRelu, {-kInfinity})[0], 0);
  }
}

// A NaN in x, the weights or the residual goes as far as it has to, and no further.
TEST(Dense, NanStaysWhereItIs) {
  DenseProblem problem(14, 9, 21);
  problem.x[3 * 9 + 8] = kNan;
  problem.residual[11 * 21 + 20] = kNan;
  problem.weights.weight[2 * 21 + 5] = kNan;
  for (const DenseOptions& options : all_options()) {
    const std::vector<double> expected = problem.run(reference(), options);
    int64_t count = 0;
    for (const double value : expected) count += std::isnan(value) ? 1 : 0;
    // A row, a column, and perhaps one element.
    EXPECT_EQ(count, 21 + 13 + (options.residual == ResidualFrom::kNowhere ? 0 : 1));
    compare_all(problem, options);
  }
}

TEST(Dense, NormOfConstantRowsIsZero) {
  const std::vector<float> constants = {0.0f, 1.0f, 0.1f, -3.7f, 1e4f + 0.3f, -1e6f, 1e30f};
  for (int64_t inner = 1; inner <= 70; ++inner) {
    DenseProblem problem(static_cast<int64_t>(constants.size()), inner, 5);
    for (int64_t r = 0; r < problem.rows; ++r) {
      std::fill_n(problem.x.begin() + r * inner, inner, constants[r]);
    }
    const std::vector<double> bias(problem.weights.bias.begin(), problem.weights.bias.end());
    for (const Implementation* implementation : simd_implementations()) {
      const std::vector<double> y = problem.run(*implementation, {.bias = true, .norm = true});
      for (int64_t r = 0; r < problem.rows; ++r) {
        ASSERT_EQ(row_of(y, r, 5), bias)
            << implementation->name << " " << inner << " times " << constants[r];
      }
    }
  }
}

// Rows far from 0 beside their spread. Differences of neighbouring floats are exact, so the usual
// tolerance holds: relative to the spread, not to the values.
TEST(Dense, NormOfRowsFarFromZero) {
  for (const float offset : {1e4f, -1e4f, 3e5f})
    for (const float spread : {0.01f, 1.0f})
      for (const int64_t inner : {2, 7, 64, 70, 515}) {
        DenseProblem problem(13, inner, 11);
        for (float& value : problem.x) value = offset + spread * value;
        SCOPED_TRACE(fmt::format("offset {} spread {}", offset, spread));
        compare_all(problem, {.norm = true});
      }
}

// One element far from the others, wherever it stands.
TEST(Dense, NormOfRowsWithAnOutlier) {
  for (const int64_t inner : {2, 9, 64, 70, 515})
    for (const float outlier : {1e3f, 1e6f, -1e6f}) {
      DenseProblem problem(13, inner, 11);
      for (int64_t r = 0; r < problem.rows; ++r) problem.x[r * inner + r * 7 % inner] = outlier;
      SCOPED_TRACE(outlier);
      compare_all(problem, {.norm = true});
    }
}

// epsilon decides where the variance is small.
TEST(Dense, NormEpsilon) {
  DenseProblem problem(5, 20, 6);
  for (float& value : problem.x) value *= 1e-3f;
  ThreadRuntime runtime;
  const auto run = [&](const Implementation& implementation, float epsilon) {
    const PackedWeights packed = problem.weights.pack(implementation, false, runtime);
    return collect_guarded<float>(5 * 6, [&](float* y) {
      implementation.dense({.rows = 5,
                            .x = problem.x.data(),
                            .norm = {.wanted = true, .epsilon = epsilon},
                            .weights = &packed,
                            .y = y},
                           runtime);
    });
  };
  for (const Implementation* implementation : simd_implementations())
    for (const float epsilon : {0.0f, 1e-8f, 1e-6f, 1e-5f, 1.0f}) {
      EXPECT_TRUE(near(run(*implementation, epsilon), run(reference(), epsilon), tolerance(20)))
          << implementation->name << " epsilon " << epsilon;
    }
}

struct MlpOptions {
  bool bias = true;
  bool norm = true;
  Activation activation = Activation::kGeluTanh;
  bool in_place = false;
};

std::string text(const MlpOptions& o) {
  return fmt::format("bias {}, norm {}, activation {}, in place {}", o.bias, o.norm,
                     static_cast<int>(o.activation), o.in_place);
}

std::vector<MlpOptions> all_mlp_options() {
  std::vector<MlpOptions> all;
  for (const bool bias : {false, true})
    for (const bool norm : {false, true})
      for (const Activation activation : kActivations)
        for (const bool in_place : {false, true}) all.push_back({bias, norm, activation, in_place});
  return all;
}

struct MlpProblem {
  MlpProblem(int64_t rows_in, int64_t features, int64_t hidden, WeightOrder order = {})
      : rows(rows_in),
        expand(features, hidden, 1, order),
        contract(hidden, features, 5, order),
        x(normal_floats(rows * features, 3)) {}

  std::vector<double> run(const Implementation& implementation, const MlpOptions& options,
                          int workers = 1) const {
    ThreadRuntime runtime(workers);
    const PackedWeights first = expand.pack(implementation, options.bias, runtime);
    const PackedWeights second = contract.pack(implementation, options.bias, runtime);
    return collect_guarded<float>(static_cast<int64_t>(x.size()), [&](float* y) {
      if (options.in_place) std::copy(x.begin(), x.end(), y);
      implementation.mlp({.rows = rows,
                          .x = options.in_place ? y : x.data(),
                          .norm = {.wanted = options.norm},
                          .expand = &first,
                          .activation = options.activation,
                          .contract = &second,
                          .y = y},
                         runtime);
    });
  }

  int64_t rows;
  Weights expand, contract;
  std::vector<float> x;
};

void compare_all(const MlpProblem& problem, const MlpOptions& options) {
  const std::vector<double> expected = problem.run(reference(), options);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(fmt::format("{} {} x {} x {} {}", implementation->name, problem.rows,
                             problem.expand.inner, problem.expand.columns, text(options)));
    EXPECT_TRUE(near(problem.run(*implementation, options), expected,
                     tolerance(problem.expand.inner + problem.expand.columns)));
  }
}

TEST(Mlp, EveryRowAndFeatureTailWithAllOptions) {
  for (int64_t rows = 1; rows <= 20; ++rows)
    for (int64_t features = 1; features <= 20; ++features) {
      const MlpProblem problem(rows, features, 21 - features);
      for (const MlpOptions& options : all_mlp_options()) {
        compare_all(problem, options);
        if (HasFailure()) return;
      }
    }
}

TEST(Mlp, EveryHiddenLength) {
  for (int64_t hidden = 1; hidden <= 150 && !HasFailure(); ++hidden) {
    compare_all(MlpProblem(7, 9, hidden, {hidden % 2 == 0, hidden % 3}), {});
  }
}

TEST(Mlp, ManyRows) {
  for (const int64_t rows : {23, 24, 25, 95, 96, 97, 193, 300}) {
    const MlpProblem problem(rows, 20, 80);
    for (const MlpOptions& options : all_mlp_options()) {
      if (options.bias) compare_all(problem, options);
      if (HasFailure()) return;
    }
  }
  const MlpProblem wide(100, 192, 768, {.out_first = true});
  compare_all(wide, {});
  compare_all(wide, {.in_place = true});
}

TEST(Mlp, SameBitsForAnyNumberOfWorkersInPlaceOrNot) {
  const MlpProblem problem(400, 24, 90);
  for (const Implementation* implementation : simd_implementations())
    for (MlpOptions options : all_mlp_options()) {
      if (options.in_place) continue;
      SCOPED_TRACE(fmt::format("{} {}", implementation->name, text(options)));
      const std::vector<double> one = problem.run(*implementation, options, 1);
      for (const bool in_place : {false, true})
        for (const int workers : {1, 2, 3}) {
          options.in_place = in_place;
          EXPECT_EQ(one, problem.run(*implementation, options, workers)) << workers << " workers";
        }
    }
}

TEST(Mlp, ARowDoesNotDependOnTheOthers) {
  const MlpProblem problem(29, 19, 45);
  MlpProblem one = problem;
  one.rows = 1;
  for (const Implementation* implementation : simd_implementations())
    for (const MlpOptions& options : all_mlp_options()) {
      SCOPED_TRACE(fmt::format("{} {}", implementation->name, text(options)));
      const std::vector<double> all = problem.run(*implementation, options);
      for (int64_t r = 0; r < problem.rows && !HasFailure(); ++r) {
        one.x.assign(problem.x.begin() + r * 19, problem.x.begin() + (r + 1) * 19);
        EXPECT_EQ(one.run(*implementation, options), row_of(all, r, 19)) << "row " << r;
      }
    }
}

// Hidden values far outside of what an exponential holds.
// The product before the MLP gives the same bits as one made by dense.
TEST(Mlp, ProjectsFirst) {
  for (const auto& [rows, inner, features] :
       {std::array<int64_t, 3>{1, 1, 1}, {7, 5, 9}, {100, 40, 24}, {301, 64, 64}}) {
    const MlpProblem problem(rows, features, 3 * features);
    const Weights project(inner, features, 11, {});
    const std::vector<float> mixed = normal_floats(rows * inner, 4);
    for (const Implementation& implementation : implementations()) {
      if (!implementation.supported) continue;
      SCOPED_TRACE(fmt::format("{} {} {} {}", implementation.name, rows, inner, features));
      ThreadRuntime runtime(2);
      const PackedWeights first = problem.expand.pack(implementation, true, runtime);
      const PackedWeights second = problem.contract.pack(implementation, true, runtime);
      const PackedWeights before = project.pack(implementation, true, runtime);
      std::vector<float> z(problem.x.size());
      implementation.dense({.rows = rows,
                            .x = mixed.data(),
                            .weights = &before,
                            .residual = problem.x.data(),
                            .y = z.data()},
                           runtime);
      MlpArgs args{
          .rows = rows, .x = z.data(), .expand = &first, .contract = &second, .y = nullptr};
      const auto run = [&](MlpArgs call) {
        return collect_guarded<float>(rows * features, [&](float* y) {
          call.y = y;
          implementation.mlp(call, runtime);
        });
      };
      const std::vector<double> expected = run(args);
      args.x = problem.x.data();
      args.mixed = mixed.data();
      args.project = &before;
      // The reference does not round z to float32 in between.
      EXPECT_TRUE(near(
          run(args), expected,
          &implementation == &implementations().front() ? tolerance(inner + 4 * features) : 0.0));
    }
  }
}

TEST(Mlp, LargeHiddenValues) {
  for (const float size : {1e3f, 1e15f, 1e30f}) {
    MlpProblem problem(13, 9, 30);
    for (float& weight : problem.expand.weight) weight *= size;
    for (const Activation activation : kActivations) {
      const MlpOptions options{.activation = activation};
      const std::vector<double> expected = problem.run(reference(), options);
      for (const Implementation* implementation : simd_implementations()) {
        SCOPED_TRACE(fmt::format("{} size {} {}", implementation->name, size, text(options)));
        EXPECT_TRUE(
            near_by_scale(problem.run(*implementation, options), expected, tolerance(9 + 30)));
      }
    }
  }
}

TEST(Mlp, NanStaysInItsRow) {
  MlpProblem problem(14, 9, 30);
  problem.x[3 * 9 + 8] = kNan;
  for (const MlpOptions& options : all_mlp_options()) {
    const std::vector<double> y = problem.run(reference(), options);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 9 == 3);
    compare_all(problem, options);
  }
}

}  // namespace
}  // namespace qna::kernels::testing
