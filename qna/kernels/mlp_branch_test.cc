// The MLP branch in training: every implementation against the reference, the reference's gradients
// against finite differences, and the same bits for any number of workers.
#include "qna/kernels/mlp_branch.h"

#include "qna/kernels/product_options_testonly.h"

namespace qna::kernels::testing {
namespace {

struct Shape {
  int64_t samples, sample_rows, features, hidden;
  int64_t rows() const { return samples * sample_rows; }
};

enum class Keep { kAll, kSome, kNone };

// T is float: by the implementation that is forced; double: by the reference.
template <typename T>
struct BranchProblem {
  BranchProblem(const Shape& s, Keep keep_in, Activation activation_in)
      : shape(s),
        keep(keep_in),
        activation(activation_in),
        x(cells(s.rows() * s.features, 1)),
        norm_weight(cells(s.features, 2)),
        norm_bias(cells(s.features, 3)),
        weight1(cells(s.hidden * s.features, 4, fan_in(s.features))),
        bias1(cells(s.hidden, 5)),
        weight2(cells(s.hidden * s.features, 6, fan_in(s.hidden))),
        bias2(cells(s.features, 7)),
        grad_y(cells(s.rows() * s.features, 8)) {
    for (int64_t i = 0; i < s.samples; ++i) {
      if (keep == Keep::kSome) drop_factor.push_back(i % 3 == 1 ? 0 : 1.25f + 0.25f * (i % 2));
      if (keep == Keep::kNone) drop_factor.push_back(0);
    }
  }
  static std::vector<T> cells(int64_t count, uint32_t seed, float scale = 1) {
    const std::vector<float> floats = normal_floats(count, seed, scale);
    return {floats.begin(), floats.end()};
  }

  Results run(int workers = 1) const {
    using Output = GuardedOutput<T>;
    const MlpBranchInputs<T> in{.rows = shape.rows(),
                                .features = shape.features,
                                .hidden = shape.hidden,
                                .activation = activation,
                                .epsilon = 1e-6,
                                .x = x.data(),
                                .norm_weight = norm_weight.data(),
                                .norm_bias = norm_bias.data(),
                                .weight1 = weight1.data(),
                                .bias1 = bias1.data(),
                                .weight2 = weight2.data(),
                                .bias2 = bias2.data(),
                                .drop_factor = or_null(drop_factor),
                                .drop_rows = shape.sample_rows};
    const int64_t map = shape.rows() * shape.features, weights = shape.hidden * shape.features;
    ThreadRuntime runtime(workers);
    Output h("h", shape.rows() * shape.hidden), y("y", map), dx("x", map),
        dg("norm weight", shape.features), ds("norm bias", shape.features), dw1("weight1", weights),
        db1("bias1", shape.hidden), dw2("weight2", weights), db2("bias2", shape.features);
    const MlpBranchArgs<T> forward{in, h.data(), y.data()};
    const MlpBranchBackwardArgs<T> backward{in,         h.data(),  grad_y.data(), dx.data(),
                                            dg.data(),  ds.data(), dw1.data(),    db1.data(),
                                            dw2.data(), db2.data()};
    if constexpr (std::is_same_v<T, float>) {
      mlp_branch(forward, runtime);
      mlp_branch_backward(backward, runtime);
    } else {
      mlp_branch_reference(forward, runtime);
      mlp_branch_backward_reference(backward, runtime);
    }
    Results results{sums_of(shape.rows()),
                    {y.take(), dx.take(), dg.take(), ds.take(), dw1.take(), db1.take(), dw2.take(),
                     db2.take()}};
    for (Part* part : {&results.parts[0], &results.parts[1]}) {
      part->tolerance = sums_of(shape.features + shape.hidden);
    }
    return results;
  }

  // Of that many products of order 1, in float32; errors of h come through the slope.
  static Tolerance sums_of(int64_t terms) {
    return {.by_scale = 4 * static_cast<double>(terms + 64) * 0x1p-24};
  }

  std::string text() const {
    return fmt::format("{} x {} rows, {} -> {} activation {} keep {}", shape.samples,
                       shape.sample_rows, shape.features, shape.hidden,
                       static_cast<int>(activation), static_cast<int>(keep));
  }

  Shape shape;
  Keep keep;
  Activation activation;
  std::vector<T> x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, grad_y, drop_factor;
};

struct MlpBranch {
  using Problem = BranchProblem<float>;

  static void near(const auto& visit) {
    for (const int64_t rows : {1, 2, 5, 6, 7, 11, 13})
      for (const int64_t features : {1, 3, 6, 8, 9, 16, 17, 33})
        for (const int64_t hidden : {1, 5, 7, 12, 16, 24, 35}) {
          visit("tails of the tiles",
                Problem({1, rows, features, hidden}, Keep::kAll, Activation::kGeluTanh), {2});
        }
    for (const Activation activation : kActivations)
      for (const Keep keep : {Keep::kAll, Keep::kSome, Keep::kNone})
        for (const Shape& s : {Shape{5, 7, 24, 40}, {1, 50, 9, 31}, {8, 13, 64, 256}}) {
          visit("activations", Problem(s, keep, activation), {2});
        }
  }

  // More rows than are packed at a time, more hidden features than a chunk holds.
  static void bits(const auto& visit) {
    for (const Shape& s :
         {Shape{4, 9000, 4, 10}, {3, 2000, 32, 700}, {2, 29, 300, 1201}, {2, 50000, 3, 5}})
      for (const Keep keep : {Keep::kAll, Keep::kSome}) {
        visit("many rows, wide layers", Problem(s, keep, Activation::kGeluTanh));
      }
  }

  static Problem nothing() { return {{0, 7, 5, 9}, Keep::kAll, Activation::kGelu}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(MlpBranch, Operator, MlpBranch);

TEST(MlpBranch, ReferenceAgainstFiniteDifferences) {
  for (const Activation activation : kActivations) {
    if (activation == Activation::kRelu || activation == Activation::kRelu6) continue;  // corners
    BranchProblem<double> p({3, 2, 5, 7}, Keep::kSome, activation);
    SCOPED_TRACE(p.text());
    expect_gradients<double>(p.run(),
                             {{"x", &p.x},
                              {"norm weight", &p.norm_weight},
                              {"norm bias", &p.norm_bias},
                              {"weight1", &p.weight1},
                              {"bias1", &p.bias1},
                              {"weight2", &p.weight2},
                              {"bias2", &p.bias2}},
                             [&] { return dot(p.run()["y"], p.grad_y); }, 1e-5, {.absolute = 1e-7});
  }
}

}  // namespace
}  // namespace qna::kernels::testing
