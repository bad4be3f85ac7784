// The MLP branch in training: every implementation against the reference, the reference's gradients
// against finite differences, and the same bits for any number of workers.
#include "qna/kernels/mlp_branch.h"

#include <array>

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kGeluTanh, Activation::kGelu,
                                       Activation::kRelu, Activation::kSilu};

struct Shape {
  int64_t samples, sample_rows, features, hidden;
  int64_t rows() const { return samples * sample_rows; }
};

enum class Keep { kAll, kSome, kNone };

std::vector<double> widened(const std::vector<float>& cells) {
  return {cells.begin(), cells.end()};
}

struct Problem {
  Problem(const Shape& s, Keep keep_in, Activation activation_in)
      : shape(s),
        activation(activation_in),
        x(normal_floats(s.rows() * s.features, 1)),
        norm_weight(normal_floats(s.features, 2)),
        norm_bias(normal_floats(s.features, 3)),
        weight1(normal_floats(s.hidden * s.features, 4, fan_in(s.features))),
        bias1(normal_floats(s.hidden, 5)),
        weight2(normal_floats(s.hidden * s.features, 6, fan_in(s.hidden))),
        bias2(normal_floats(s.features, 7)),
        grad_y(normal_floats(s.rows() * s.features, 8)) {
    for (int64_t i = 0; i < s.samples; ++i) {
      if (keep_in == Keep::kSome) keep.push_back(i % 3 == 1 ? 0.0f : 1.25f + 0.25f * (i % 2));
      if (keep_in == Keep::kNone) keep.push_back(0.0f);
    }
  }
  static float fan_in(int64_t count) { return 1 / std::sqrt(static_cast<float>(count)); }

  Shape shape;
  Activation activation;
  std::vector<float> x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, grad_y, keep;
};

struct Result {
  std::vector<std::vector<double>> parts;
  static constexpr std::array kNames = {"y",         "dx",      "d norm weight", "d norm bias",
                                        "d weight1", "d bias1", "d weight2",     "d bias2"};
};

Result run(const Implementation& implementation, const Problem& p, int workers = 1) {
  const Shape& s = p.shape;
  const MlpBranchInputs<float> in{.rows = s.rows(),
                                  .features = s.features,
                                  .hidden = s.hidden,
                                  .activation = p.activation,
                                  .epsilon = 1e-6,
                                  .x = p.x.data(),
                                  .norm_weight = p.norm_weight.data(),
                                  .norm_bias = p.norm_bias.data(),
                                  .weight1 = p.weight1.data(),
                                  .bias1 = p.bias1.data(),
                                  .weight2 = p.weight2.data(),
                                  .bias2 = p.bias2.data(),
                                  .keep = or_null(p.keep),
                                  .keep_rows = s.sample_rows};
  const int64_t map = s.rows() * s.features;
  const int64_t weights = s.hidden * s.features;
  ThreadRuntime runtime(workers);
  GuardedOutput<float> h(s.rows() * s.hidden), y(map), dx(map), dg(s.features), ds(s.features),
      dw1(weights), db1(s.hidden), dw2(weights), db2(s.features);
  implementation.mlp_branch({in, h.data(), y.data()}, runtime);
  implementation.mlp_branch_backward({in, h.data(), p.grad_y.data(), dx.data(), dg.data(),
                                      ds.data(), dw1.data(), db1.data(), dw2.data(), db2.data()},
                                     runtime);
  Result result;
  for (auto* out : {&y, &dx, &dg, &ds, &dw1, &db1, &dw2, &db2}) {
    result.parts.push_back(collect_rows(*out, 1, out->size(), out->size()));
    EXPECT_TRUE(out->intact()) << "written outside an output";
  }
  return result;
}

void expect_near(const Result& actual, const Result& expected, const Shape& s) {
  for (size_t i = 0; i < expected.parts.size(); ++i) {
    // Sums of that many products of order 1, in float32; errors of h come through the slope.
    const int64_t terms = i < 2 ? s.features + s.hidden : s.rows();
    const double tolerance = 4 * static_cast<double>(terms + 64) * 0x1p-24;
    EXPECT_TRUE(near_by_scale(actual.parts[i], expected.parts[i], tolerance)) << Result::kNames[i];
  }
}

std::string text(const Shape& s) {
  return fmt::format("{} x {} rows, {} -> {}", s.samples, s.sample_rows, s.features, s.hidden);
}

TEST(MlpBranch, EveryTailOfTheTiles) {
  const Implementation& reference = implementations().front();
  for (const int64_t rows : {1, 2, 5, 6, 7, 11, 13})
    for (const int64_t features : {1, 3, 6, 8, 9, 16, 17, 33})
      for (const int64_t hidden : {1, 5, 7, 12, 16, 24, 35}) {
        const Shape shape{1, rows, features, hidden};
        // A row of one or few elements near each other is divided by a small number: the error of
        // its gradient has no bound that helps.
        const Problem problem(shape, Keep::kAll, Activation::kGeluTanh);
        const Result expected = run(reference, problem);
        for (const Implementation* implementation : simd_implementations()) {
          SCOPED_TRACE(std::string(implementation->name) + " " + text(shape));
          expect_near(run(*implementation, problem, 2), expected, shape);
        }
      }
}

TEST(MlpBranch, EveryActivationAndKeep) {
  const Implementation& reference = implementations().front();
  for (const Activation activation : kActivations)
    for (const Keep keep : {Keep::kAll, Keep::kSome, Keep::kNone})
      for (const Shape& shape : {Shape{5, 7, 24, 40}, Shape{1, 50, 9, 31}, Shape{8, 13, 64, 256}}) {
        const Problem problem(shape, keep, activation);
        const Result expected = run(reference, problem);
        for (const Implementation* implementation : simd_implementations()) {
          SCOPED_TRACE(fmt::format("{} {} activation {} keep {}", implementation->name, text(shape),
                                   static_cast<int>(activation), static_cast<int>(keep)));
          expect_near(run(*implementation, problem, 2), expected, shape);
        }
      }
}

// More rows than are packed at a time, more hidden features than a chunk holds.
TEST(MlpBranch, ManyRowsAndWideLayers) {
  const Implementation& reference = implementations().front();
  for (const Shape& shape :
       {Shape{4, 9000, 4, 10}, Shape{3, 2000, 32, 700}, Shape{2, 29, 300, 1201}})
    for (const Keep keep : {Keep::kAll, Keep::kSome}) {
      const Problem problem(shape, keep, Activation::kGeluTanh);
      const Result expected = run(reference, problem);
      const Implementation& fastest = *simd_implementations().back();
      SCOPED_TRACE(text(shape));
      const Result one = run(fastest, problem, 1);
      expect_near(one, expected, shape);
      for (const int workers : {1, 2, 3, 8}) {
        EXPECT_EQ(run(fastest, problem, workers).parts, one.parts) << workers << " workers";
      }
    }
}

TEST(MlpBranch, NoRows) {
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    const Shape shape{0, 7, 5, 9};
    const Result result = run(implementation, Problem(shape, Keep::kAll, Activation::kGelu));
    for (const std::vector<double>& part : result.parts) EXPECT_EQ(largest(part), 0);
  }
}

TEST(MlpBranch, ReferenceAgainstFiniteDifferences) {
  const Shape s{3, 2, 5, 7};
  for (const Activation activation : kActivations) {
    if (activation == Activation::kRelu) continue;  // has a corner
    const Problem p(s, Keep::kSome, activation);
    std::array<std::vector<double>, 7> inputs = {
        widened(p.x),     widened(p.norm_weight), widened(p.norm_bias), widened(p.weight1),
        widened(p.bias1), widened(p.weight2),     widened(p.bias2)};
    const std::vector<double> keep = widened(p.keep);
    const std::vector<double> grad_y = widened(p.grad_y);
    const auto given = [&] {
      return MlpBranchInputs<double>{.rows = s.rows(),
                                     .features = s.features,
                                     .hidden = s.hidden,
                                     .activation = activation,
                                     .epsilon = 1e-6,
                                     .x = inputs[0].data(),
                                     .norm_weight = inputs[1].data(),
                                     .norm_bias = inputs[2].data(),
                                     .weight1 = inputs[3].data(),
                                     .bias1 = inputs[4].data(),
                                     .weight2 = inputs[5].data(),
                                     .bias2 = inputs[6].data(),
                                     .keep = keep.data(),
                                     .keep_rows = s.sample_rows};
    };
    ThreadRuntime runtime;
    std::vector<double> h(s.rows() * s.hidden), y(grad_y.size());
    const auto loss = [&] {
      mlp_branch_reference<double>({given(), h.data(), y.data()}, runtime);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * grad_y[i];
      return sum;
    };
    loss();
    std::array<std::vector<double>, 7> grads;
    for (size_t i = 0; i < inputs.size(); ++i) grads[i].resize(inputs[i].size());
    mlp_branch_backward_reference<double>(
        {given(), h.data(), grad_y.data(), grads[0].data(), grads[1].data(), grads[2].data(),
         grads[3].data(), grads[4].data(), grads[5].data(), grads[6].data()},
        runtime);
    for (size_t i = 0; i < inputs.size(); ++i)
      for (size_t at = 0; at < inputs[i].size(); ++at) {
        const double step = 1e-5;
        const double before = inputs[i][at];
        inputs[i][at] = before + step;
        const double above = loss();
        inputs[i][at] = before - step;
        const double below = loss();
        inputs[i][at] = before;
        EXPECT_NEAR(grads[i][at], (above - below) / (2 * step), 1e-7)
            << "input " << i << " element " << at << " activation " << static_cast<int>(activation);
      }
  }
}

}  // namespace
}  // namespace qna::kernels::testing
