// dense and mlp of every implementation against the reference: every tail of their tiles, every
// choice of what stands before and behind the product.
#include "qna/kernels/dense.h"

#include <array>

#include "qna/kernels/product_options_testonly.h"

namespace qna::kernels::testing {
namespace {

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
    const std::vector<float> cells = normal_floats(inner * columns, seed, fan_in(inner));
    // NaN between the rows; ends with the last element.
    weight.assign((rows - 1) * (row + order.gap) + row, kNan);
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t c = 0; c < columns; ++c) {
        weight[k * inner_stride + c * column_stride] = cells[k * columns + c];
      }
  }

  PackedWeights pack(bool with_bias, Runtime& runtime) const {
    return pack_matrix({.inner = inner,
                        .columns = columns,
                        .weight = weight.data(),
                        .inner_stride = inner_stride,
                        .column_stride = column_stride,
                        .bias = with_bias ? bias.data() : nullptr,
                        .type = type},
                       runtime);
  }

  int64_t inner, columns;
  int64_t inner_stride, column_stride;
  std::vector<float> weight, bias;
  WeightType type = WeightType::kFloat32;
};

struct DenseProblem {
  DenseProblem(int64_t rows_in, int64_t inner, int64_t columns,
               const ProductOptions& options_in = {}, WeightOrder order = {})
      : rows(rows_in),
        options(options_in),
        weights(inner, columns, 1, order),
        x(normal_floats(rows * inner, 3)),
        residual(normal_floats(rows * columns, 4)) {}

  DenseProblem with(const ProductOptions& others) const {
    DenseProblem next = *this;
    next.options = others;
    return next;
  }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    const PackedWeights packed = weights.pack(options.bias, runtime);
    return one_output(rows * weights.columns, product_tolerance(weights.inner), [&](float* y) {
      dense({.rows = rows,
             .x = x.data(),
             .norm = {.wanted = options.norm, .epsilon = options.epsilon},
             .weights = &packed,
             .activation = options.activation,
             .residual = residual_of(options.residual, residual, x.data(), y),
             .y = y},
            runtime);
    });
  }

  int64_t count() const { return rows; }
  DenseProblem alone(int64_t row) const {
    DenseProblem one = *this;
    one.rows = 1;
    one.x = part_of(x, row, rows);
    one.residual = part_of(residual, row, rows);
    return one;
  }

  std::string text() const {
    return fmt::format("{} x {} x {} {}", rows, weights.inner, weights.columns,
                       testing::text(options));
  }

  int64_t rows;
  ProductOptions options;
  Weights weights;
  std::vector<float> x, residual;
};

struct Dense {
  using Problem = DenseProblem;

  static void near(const auto& visit) {
    const std::vector<ProductOptions> all = all_product_options();
    for (int64_t rows = 1; rows <= 20; ++rows)
      for (int64_t columns = 1; columns <= 20; ++columns) {
        const Problem problem(rows, 5, columns);
        for (const ProductOptions& o : all) visit("row and column tails", problem.with(o));
      }
    for (int64_t inner = 1; inner <= 70; ++inner) {
      const Problem problem(7, inner, 9);
      visit("inner lengths", problem);
      visit("inner lengths", problem.with({.bias = false, .norm = true}));
      visit("inner lengths",
            problem.with(
                {.norm = true, .activation = Activation::kGeluTanh, .residual = Residual::kOther}));
    }
    for (const bool out_first : {false, true})
      for (const int64_t gap : {0, 1, 5})
        for (const auto& [inner, columns] :
             {std::pair<int64_t, int64_t>{1, 1}, {3, 8}, {16, 5}, {19, 33}}) {
          visit(fmt::format("weights out first {}, gap {}", out_first, gap),
                Problem(7, inner, columns, {}, {out_first, gap}));
        }
    // Columns over several panels of up to 5 vectors of 16 lanes.
    for (int64_t columns = 21; columns <= 150; ++columns) {
      visit("panels", Problem(8, 3, columns, {.residual = Residual::kOther}));
      visit("panels", Problem(8, 3, columns, all[columns % all.size()]));
    }
    // Rows over several chunks, which are of 24 to 96 rows.
    for (const int64_t rows : {23, 24, 25, 95, 96, 97, 193, 300}) {
      const Problem problem(rows, 40, 50);
      for (const ProductOptions& o : all) {
        if (o.bias) visit("many rows", problem.with(o));
      }
    }
    for (const Residual residual : {Residual::kOther, Residual::kOutput}) {
      visit("large",
            Problem(100, 700, 600,
                    {.norm = true, .activation = Activation::kGelu, .residual = residual}));
    }
    // The inner index goes in parts, which begin with what the one before left in y.
    for (const int64_t inner : {95, 96, 97, 144, 145, 192, 193, 289, 3100}) {
      for (const Residual residual : {Residual::kNone, Residual::kOther, Residual::kOutput}) {
        visit("parts of the inner index", Problem(31, inner, 70, {.residual = residual}));
      }
    }
    visit("very many rows", Problem(100000, 7, 5, {.norm = true}));
    // Rows far from 0 beside their spread. Differences of neighbouring floats are exact, so the
    // usual tolerance holds: relative to the spread, not to the values.
    for (const float offset : {1e4f, -1e4f, 3e5f})
      for (const float spread : {0.01f, 1.0f})
        for (const int64_t inner : {2, 7, 64, 70, 515}) {
          Problem problem(13, inner, 11, {.bias = false, .norm = true});
          for (float& value : problem.x) value = offset + spread * value;
          visit(fmt::format("norm of rows {} from 0, spread {}", offset, spread), problem);
        }
    // One element far from the others, wherever it stands.
    for (const int64_t inner : {2, 9, 64, 70, 515})
      for (const float outlier : {1e3f, 1e6f, -1e6f}) {
        Problem problem(13, inner, 11, {.bias = false, .norm = true});
        for (int64_t r = 0; r < problem.rows; ++r) problem.x[r * inner + r * 7 % inner] = outlier;
        visit(fmt::format("norm of rows with {}", outlier), problem);
      }
    // epsilon decides where the variance is small.
    for (const float epsilon : {0.0f, 1e-8f, 1e-6f, 1e-5f, 1.0f}) {
      Problem problem(5, 20, 6, {.bias = false, .norm = true, .epsilon = epsilon});
      for (float& value : problem.x) value *= 1e-3f;
      visit("epsilon", problem);
    }
  }

  static void bits(const auto& visit) {
    const Problem many(400, 30, 43), few(29, 35, 43);
    for (const ProductOptions& o : all_product_options()) {
      visit("many rows", many.with(o), {1, 2, 3});
      visit("rows alone", few.with(o), {1});
    }
  }

  static Problem nothing() { return {0, 5, 6, {.norm = true}}; }
};

// One row for each of `values`, all columns alike: what an activation makes of them.
DenseProblem activation_problem(Activation activation, const std::vector<float>& values) {
  DenseProblem problem(static_cast<int64_t>(values.size()), 1, 37,
                       {.bias = false, .activation = activation});
  problem.x = values;
  problem.weights.weight.assign(37, 1.0f);
  return problem;
}

std::vector<double> first_column(const DenseProblem& problem) {
  const std::vector<double> all = problem.run().cells();
  std::vector<double> first;
  for (int64_t r = 0; r < problem.rows; ++r) {
    first.push_back(all[r * 37]);
    EXPECT_TRUE(near(part_of(all, r, problem.rows), std::vector<double>(37, first.back()), {}))
        << problem.x[r];
  }
  return first;
}

// One row, tiles and their tails, more than a block; panels of every width, parts that are widened
// one after the other.
TEST(Dense, WeightsKeptAsBFloat16) {
  for (const int64_t rows : {1, 5, 12, 13, 97, 200})
    for (const auto& [inner, columns] :
         {std::pair<int64_t, int64_t>{1, 1}, {5, 17}, {33, 64}, {130, 90}, {700, 270}}) {
      const DenseProblem problem(
          rows, inner, columns,
          {.norm = true, .activation = Activation::kGelu, .residual = Residual::kOther});
      DenseProblem kept = problem, rounded = problem;
      kept.weights.type = WeightType::kBFloat16;
      round_to_bfloat16(rounded.weights.weight);
      compare_all(kept, {1, 3});
      for_each_implementation([&] {
        EXPECT_TRUE(same_bits(kept.run(), rounded.run())) << kept.text();
        EXPECT_TRUE(inner <= 5 || !same_bits(kept.run(), problem.run())) << kept.text();
      });
    }
  Weights weights(512, 256, 1);
  weights.type = WeightType::kBFloat16;
  for_each_simd([&] {
    ThreadRuntime runtime;
    EXPECT_LT(weights.pack(true, runtime).bytes(), 512 * 256 * 2 + 256 * 4 + 1000);
  });
}

TEST(Dense, ActivationsOfAnySize) {
  std::vector<float> values = {0.0f, -0.0f};
  for (const float size :
       {1e-40f, 1e-30f, 1e-10f, 1e-3f, 80.0f, 86.0f, 87.0f, 88.0f, 89.0f, 90.0f,
        103.0f, 104.0f, 105.0f, 1e3f,  1e4f,  1e10f, 1e18f, 2e19f, 1e30f, 3e38f}) {
    values.insert(values.end(), {size, -size});
  }
  for (float value = -30; value <= 30; value += 0.03125f) values.push_back(value);
  for (const Activation activation : kActivations) {
    const DenseProblem problem = activation_problem(activation, values);
    SCOPED_TRACE(problem.text());
    std::vector<double> expected;
    for_each_implementation([&] {
      const std::vector<double> actual = first_column(problem);
      if (expected.empty()) expected = actual;  // the reference comes first
      // erf is good to 1.5e-7, of which x / 2 counts while |x| < 6: 4.5e-7. The rest is a few
      // roundings of the result, and of the exponents near 1.
      EXPECT_TRUE(near(actual, expected, {.absolute = 6e-7, .relative = 6e-7}));
    });
  }
}

TEST(Dense, InfinityAndNan) {
  for (const Activation activation : kActivations) {
    const DenseProblem problem = activation_problem(activation, {1.0f, kInfinity, kNan, 0.0f});
    SCOPED_TRACE(problem.text());
    const double one = by_reference(problem).cells()[0];
    const double largest = activation == Activation::kRelu6 ? 6 : kInfinity;
    for_each_implementation([&] {
      EXPECT_TRUE(near(first_column(problem), {one, largest, kNan, 0.0f}, {.absolute = 1e-6}));
    });
  }
  for_each_implementation(
      [] { EXPECT_EQ(first_column(activation_problem(Activation::kRelu, {-kInfinity}))[0], 0); });
}

// A NaN in x, the weights or the residual goes as far as it has to, and no further.
TEST(Dense, NanStaysWhereItIs) {
  DenseProblem problem(14, 9, 21);
  problem.x[3 * 9 + 8] = kNan;
  problem.residual[11 * 21 + 20] = kNan;
  problem.weights.weight[2 * 21 + 5] = kNan;
  for (const ProductOptions& options : all_product_options()) {
    // A row, a column, and perhaps one element.
    EXPECT_EQ(count_nan(compare_all(problem.with(options)).cells()),
              21 + 13 + (options.residual == Residual::kNone ? 0 : 1));
  }
}

TEST(Dense, NormOfConstantRowsIsZero) {
  const std::vector<float> constants = {0.0f, 1.0f, 0.1f, -3.7f, 1e4f + 0.3f, -1e6f, 1e30f};
  for (int64_t inner = 1; inner <= 70; ++inner) {
    DenseProblem problem(static_cast<int64_t>(constants.size()), inner, 5, {.norm = true});
    for (int64_t r = 0; r < problem.rows; ++r) {
      std::fill_n(problem.x.begin() + r * inner, inner, constants[r]);
    }
    const std::vector<double> bias(problem.weights.bias.begin(), problem.weights.bias.end());
    for_each_simd([&] {
      const std::vector<double> y = problem.run().cells();
      for (int64_t r = 0; r < problem.rows; ++r) {
        ASSERT_EQ(part_of(y, r, problem.rows), bias) << inner << " times " << constants[r];
      }
    });
  }
}

struct MlpOptions {
  bool bias = true;
  bool norm = true;
  Activation activation = Activation::kGeluTanh;
  bool in_place = false;
};

std::vector<MlpOptions> all_mlp_options() {
  std::vector<MlpOptions> all;
  for (const bool bias : {false, true})
    for (const bool norm : {false, true})
      for (const Activation activation : kActivations)
        for (const bool in_place : {false, true}) all.push_back({bias, norm, activation, in_place});
  return all;
}

struct MlpProblem {
  MlpProblem(int64_t rows_in, int64_t features, int64_t hidden, const MlpOptions& options_in = {},
             WeightOrder order = {})
      : rows(rows_in),
        options(options_in),
        expand(features, hidden, 1, order),
        contract(hidden, features, 5, order),
        x(normal_floats(rows * features, 3)),
        tolerance(product_tolerance(features + hidden)) {}

  MlpProblem with(const MlpOptions& others) const {
    MlpProblem next = *this;
    next.options = others;
    return next;
  }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    const PackedWeights first = expand.pack(options.bias, runtime);
    const PackedWeights second = contract.pack(options.bias, runtime);
    return one_output(static_cast<int64_t>(x.size()), tolerance, [&](float* y) {
      if (options.in_place) std::copy(x.begin(), x.end(), y);
      mlp({.rows = rows,
           .x = options.in_place ? y : x.data(),
           .norm = {.wanted = options.norm},
           .expand = &first,
           .activation = options.activation,
           .contract = &second,
           .y = y},
          runtime);
    });
  }

  int64_t count() const { return rows; }
  MlpProblem alone(int64_t row) const {
    MlpProblem one = *this;
    one.rows = 1;
    one.x = part_of(x, row, rows);
    return one;
  }

  std::string text() const {
    return fmt::format("{} x {} x {} bias {}, norm {}, activation {}, in place {}", rows,
                       expand.inner, expand.columns, options.bias, options.norm,
                       static_cast<int>(options.activation), options.in_place);
  }

  int64_t rows;
  MlpOptions options;
  Weights expand, contract;
  std::vector<float> x;
  Tolerance tolerance;
};

struct Mlp {
  using Problem = MlpProblem;

  static void near(const auto& visit) {
    for (int64_t rows = 1; rows <= 20; ++rows)
      for (int64_t features = 1; features <= 20; ++features) {
        const Problem problem(rows, features, 21 - features);
        for (const MlpOptions& o : all_mlp_options()) visit("tails", problem.with(o));
      }
    for (int64_t hidden = 1; hidden <= 150; ++hidden) {
      visit("hidden lengths", Problem(7, 9, hidden, {}, {hidden % 2 == 0, hidden % 3}));
    }
    for (const int64_t rows : {23, 24, 25, 95, 96, 97, 193, 300}) {
      const Problem problem(rows, 20, 80);
      for (const MlpOptions& o : all_mlp_options()) {
        if (o.bias) visit("many rows", problem.with(o));
      }
    }
    for (const bool in_place : {false, true}) {
      visit("wide", Problem(100, 192, 768, {.in_place = in_place}, {.out_first = true}));
    }
    // Hidden values far outside of what an exponential holds.
    for (const float size : {1e3f, 1e15f, 1e30f})
      for (const Activation activation : kActivations) {
        Problem problem(13, 9, 30, {.activation = activation});
        for (float& weight : problem.expand.weight) weight *= size;
        problem.tolerance = {.by_scale = problem.tolerance.absolute};
        visit(fmt::format("hidden values of {}", size), problem);
      }
  }

  static void bits(const auto& visit) {
    const Problem many(400, 24, 90), few(29, 19, 45);
    for (const MlpOptions& o : all_mlp_options()) {
      visit("many rows", many.with(o), {1, 2, 3});
      visit("rows alone", few.with(o), {1});
    }
  }

  static Problem nothing() { return {0, 5, 6}; }
};

using Products = ::testing::Types<Dense, Mlp>;
INSTANTIATE_TYPED_TEST_SUITE_P(Products, Operator, Products);

TEST(Mlp, WeightsKeptAsBFloat16) {
  for (const int64_t rows : {1, 7, 49, 200}) {
    MlpProblem kept(rows, 70, 300), rounded = kept;
    kept.expand.type = kept.contract.type = WeightType::kBFloat16;
    round_to_bfloat16(rounded.expand.weight);
    round_to_bfloat16(rounded.contract.weight);
    compare_all(kept, {1, 3});
    for_each_implementation([&] { EXPECT_TRUE(same_bits(kept.run(), rounded.run())); });
  }
}

TEST(Mlp, SameBitsInPlaceOrNot) {
  const MlpProblem problem(400, 24, 90);
  for (MlpOptions options : all_mlp_options()) {
    if (options.in_place) continue;
    const MlpProblem apart = problem.with(options);
    options.in_place = true;
    const MlpProblem in_place = problem.with(options);
    SCOPED_TRACE(in_place.text());
    for_each_simd([&] { EXPECT_TRUE(same_bits(in_place.run(), apart.run())); });
  }
}

// The product before the MLP gives the same bits as one made by dense.
TEST(Mlp, ProjectsFirst) {
  for (const auto& [rows_in, inner_in, features_in] :
       {std::array<int64_t, 3>{1, 1, 1}, {7, 5, 9}, {100, 40, 24}, {301, 64, 64}}) {
    const int64_t rows = rows_in, inner = inner_in, features = features_in;
    const MlpProblem problem(rows, features, 3 * features);
    const Weights project(inner, features, 11, {});
    const std::vector<float> mixed = normal_floats(rows * inner, 4);
    SCOPED_TRACE(fmt::format("{} {} {}", rows, inner, features));
    for_each_implementation([&] {
      ThreadRuntime runtime(2);
      const PackedWeights first = problem.expand.pack(true, runtime);
      const PackedWeights second = problem.contract.pack(true, runtime);
      const PackedWeights before = project.pack(true, runtime);
      std::vector<float> z(problem.x.size());
      dense({.rows = rows,
             .x = mixed.data(),
             .weights = &before,
             .residual = problem.x.data(),
             .y = z.data()},
            runtime);
      MlpArgs args{
          .rows = rows, .x = z.data(), .expand = &first, .contract = &second, .y = nullptr};
      // The reference does not round z to float32 in between.
      const bool is_reference = &chosen_implementation() == &implementations().front();
      const Tolerance tolerance =
          is_reference ? product_tolerance(inner + 4 * features) : Tolerance{};
      const auto run = [&](MlpArgs call) {
        return one_output(rows * features, tolerance, [&](float* y) {
          call.y = y;
          mlp(call, runtime);
        });
      };
      const Results expected = run(args);
      args.x = problem.x.data();
      args.mixed = mixed.data();
      args.project = &before;
      expect_near(run(args), expected);
    });
  }
}

TEST(Mlp, NanStaysInItsRow) {
  MlpProblem problem(14, 9, 30);
  problem.x[3 * 9 + 8] = kNan;
  for (const MlpOptions& options : all_mlp_options()) {
    const std::vector<double> y = compare_all(problem.with(options)).cells();
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 9 == 3);
  }
}

// A residual is added to the finished sum. Each of these products is below its last place, not
// their sum.
TEST(Dense, KeepsSmallProductsBesideALargeResidual) {
  for (const int64_t rows : {1, 31}) {
    DenseProblem problem(rows, 4096, 9, {.bias = false, .residual = Residual::kOther});
    std::fill(problem.x.begin(), problem.x.end(), 1.0f);
    std::fill(problem.weights.weight.begin(), problem.weights.weight.end(), 0.02f);
    std::fill(problem.residual.begin(), problem.residual.end(), 1e6f);
    for_each_implementation([&] {
      const Results results = problem.run();
      for (const double y : results.cells()) EXPECT_NEAR(y, 1e6 + 4096 * 0.02, 0.07);
    });
  }
}

}  // namespace
}  // namespace qna::kernels::testing
