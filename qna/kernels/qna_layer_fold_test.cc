// The parameters of a layer as its kernel takes them: against the formulas, and their gradients
// against finite differences.
#include "qna/kernels/qna_layer_fold.h"

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

struct FoldOptions {
  int64_t in, queries, heads, dim;
  bool norm = true, bias = true, normalize = true, stop_gradient = false;
};

template <typename T>
struct FoldProblem : FoldOptions {
  explicit FoldProblem(const FoldOptions& o)
      : FoldOptions(o),
        query(cells(o.queries * o.heads * o.dim, 1)),
        key_weight(cells(o.in * o.heads * o.dim, 2)),
        value_weight(cells(o.in * o.heads * o.dim, 3)),
        value_bias(cells(o.bias ? o.heads * o.dim : 0, 4)),
        scale(cells(o.norm ? o.in : 0, 5)),
        shift(cells(o.norm ? o.in : 0, 6)) {}

  static std::vector<T> cells(int64_t count, uint32_t seed) {
    const std::vector<float> floats = normal_floats(count, seed);
    return {floats.begin(), floats.end()};
  }
  QnALayerFold<T> inputs() const {
    return {.in_features = in,
            .queries = queries,
            .heads = heads,
            .head_dim = dim,
            .normalize = normalize,
            .stop_gradient = stop_gradient,
            .query = query.data(),
            .key_weight = key_weight.data(),
            .value_weight = value_weight.data(),
            .value_bias = or_null(value_bias),
            .norm_scale = or_null(scale),
            .norm_shift = or_null(shift)};
  }
  int64_t features() const { return heads * dim; }
  int64_t values() const { return norm ? in * features() : 0; }

  Results forward(int workers = 1) const {
    GuardedOutput<T> scores("scores", in * queries * heads), value("values", values()),
        bias_out("bias", norm ? features() : 0);
    ThreadRuntime runtime(workers);
    fold_qna_layer<T>({inputs(), scores.data(), value.data(), bias_out.data()}, runtime);
    return {{}, {scores.take(), value.take(), bias_out.take()}};
  }
  // Of the sum of the results, each times its cell of `weights`.
  Results backward(const Results& weights, int workers = 1) const {
    const auto grad = [&](const char* name) {
      return std::vector<T>(weights[name].begin(), weights[name].end());
    };
    const std::vector<T> scores = grad("scores"), value = grad("values"), bias_grad = grad("bias");
    GuardedOutput<T> query_grad("query", queries * features()), key("key", in * features()),
        value_grad("value", values()), scale_grad("scale", norm ? in : 0),
        shift_grad("shift", norm ? in : 0);
    ThreadRuntime runtime(workers);
    fold_qna_layer_backward<T>(
        {inputs(), scores.data(), or_null(value), or_null(bias_grad), query_grad.data(), key.data(),
         value_grad.data(), scale_grad.data(), shift_grad.data()},
        runtime);
    return {
        {},
        {query_grad.take(), key.take(), value_grad.take(), scale_grad.take(), shift_grad.take()}};
  }

  std::vector<T> query, key_weight, value_weight, value_bias, scale, shift;
};

const FoldOptions kOptions[] = {
    {.in = 5, .queries = 2, .heads = 3, .dim = 4},
    {.in = 70, .queries = 3, .heads = 2, .dim = 17, .bias = false},
    {.in = 33, .queries = 1, .heads = 1, .dim = 9, .norm = false},
    {.in = 6, .queries = 2, .heads = 2, .dim = 3, .normalize = false},
    {.in = 6, .queries = 2, .heads = 2, .dim = 8, .stop_gradient = true},
    {.in = 1, .queries = 1, .heads = 1, .dim = 1, .norm = false, .bias = false}};

TEST(QnALayerFold, IsItsFormula) {
  for (const FoldOptions& options : kOptions) {
    const FoldProblem<float> p(options);
    const Results found = p.forward();
    const int64_t f = p.features();
    std::vector<double> scores, values, bias;
    for (int64_t c = 0; c < p.in; ++c)
      for (int64_t l = 0; l < p.queries; ++l)
        for (int64_t h = 0; h < p.heads; ++h) {
          double sum = 0, square = 0;
          for (int64_t d = h * p.dim; d < (h + 1) * p.dim; ++d) {
            sum += static_cast<double>(p.key_weight[c * f + d]) * p.query[l * f + d];
            square += static_cast<double>(p.query[l * f + d]) * p.query[l * f + d];
          }
          const double length = p.normalize ? std::sqrt(square) + 1e-6 : 1;
          scores.push_back(sum / length / std::sqrt(p.dim) * (p.norm ? p.scale[c] : 1));
        }
    for (int64_t i = 0; p.norm && i < p.in * f; ++i) {
      values.push_back(static_cast<double>(p.scale[i / f]) * p.value_weight[i]);
    }
    for (int64_t d = 0; p.norm && d < f; ++d) {
      bias.push_back(p.bias ? p.value_bias[d] : 0);
      for (int64_t c = 0; c < p.in; ++c) {
        bias.back() += static_cast<double>(p.shift[c]) * p.value_weight[c * f + d];
      }
    }
    const Tolerance tolerance{.by_scale = 1e-6};
    EXPECT_TRUE(near(found["scores"], scores, tolerance));
    EXPECT_TRUE(near(found["values"], values, tolerance));
    EXPECT_TRUE(near(found["bias"], bias, tolerance));
    EXPECT_TRUE(same_bits(p.forward(3), found));
    EXPECT_TRUE(same_bits(p.backward(found, 3), p.backward(found)));
  }
}

TEST(QnALayerFold, GradientsByFiniteDifferences) {
  for (const FoldOptions& options : kOptions) {
    FoldProblem<double> p(options);
    Results weights = p.forward();
    uint32_t seed = 10;
    for (Part& part : weights.parts) {
      part.cells = FoldProblem<double>::cells(static_cast<int64_t>(part.cells.size()), seed++);
    }
    const auto loss = [&](const FoldProblem<double>& problem) {
      double sum = 0;
      for (const Part& part : problem.forward().parts) sum += dot(part.cells, weights[part.name]);
      return sum;
    };
    const Results gradients = p.backward(weights);
    const auto now = [&] { return loss(p); };
    const Tolerance tolerance{.by_scale = 1e-7};
    expect_gradients<double>(gradients, {{"key", &p.key_weight}}, now, 1e-4, tolerance);
    if (p.norm) {
      expect_gradients<double>(
          gradients, {{"value", &p.value_weight}, {"scale", &p.scale}, {"shift", &p.shift}}, now,
          1e-4, tolerance);
    }
    if (!p.stop_gradient) {
      expect_gradients<double>(gradients, {{"query", &p.query}}, now, 1e-5, tolerance);
      continue;
    }
    // Lengths that count as constant: as if the queries had been divided before.
    FoldProblem<double> divided = p;
    divided.normalize = false;
    std::vector<double> lengths(p.query.size());
    for (size_t i = 0; i < p.query.size(); ++i) {
      double square = 0;
      for (int64_t d = 0; d < p.dim; ++d) square += std::pow(p.query[i / p.dim * p.dim + d], 2);
      lengths[i] = std::sqrt(square) + 1e-6;
      divided.query[i] /= lengths[i];
    }
    const Results plain = divided.backward(weights);
    for (size_t i = 0; i < p.query.size(); ++i) {
      EXPECT_NEAR(gradients["query"][i], plain["query"][i] / lengths[i], 1e-12);
    }
  }
}

// The length's slope at 0 does not exist; LibTorch's is 0.
TEST(QnALayerFold, QueriesOfZeroGetAFiniteGradient) {
  FoldProblem<double> p({.in = 4, .queries = 1, .heads = 2, .dim = 3});
  std::fill(p.query.begin(), p.query.end(), 0.0);
  const Results out = p.forward();
  const Results gradients = p.backward(out);
  for (const double g : gradients["query"]) EXPECT_TRUE(std::isfinite(g));
  EXPECT_EQ(largest(out["scores"]), 0);
}

}  // namespace
}  // namespace qna::kernels::testing
