// The gradients of self-attention in windows: every implementation against the reference, the
// reference against differences of the forward pass, and the same bits for any number of workers.
#include "qna/kernels/self_attention.h"
#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

struct Size {
  int64_t height, width;
};

struct Problem {
  Problem(int64_t batch, Size map, Size window, int64_t heads, int64_t dim, bool with_bias,
          bool with_mask)
      : args{.batch = batch,
             .height = map.height,
             .width = map.width,
             .heads = heads,
             .head_dim = dim,
             .window_h = std::min(window.height, map.height),
             .window_w = std::min(window.width, map.width),
             .qkv = nullptr,
             .scale = 1 / std::sqrt(static_cast<float>(dim)),
             .bias = nullptr,
             .bias_h = window.height,
             .bias_w = window.width + 1,  // larger than needed
             .mask = nullptr,
             .out = nullptr} {
    qkv = normal_floats(pixels() * 3 * features(), 1);
    if (with_bias) bias = normal_floats(heads * (2 * args.bias_h - 1) * (2 * args.bias_w - 1), 2);
    grad_out = normal_floats(pixels() * features(), 3);
    std::mt19937 random(4);
    for (int64_t n = 0; with_mask && n < pixels(); ++n) mask.push_back(random() % 4 != 0);
  }
  int64_t pixels() const { return args.batch * args.height * args.width; }
  int64_t features() const { return args.heads * args.head_dim; }

  std::vector<float> forward(const Implementation& implementation) const {
    ThreadRuntime runtime;
    std::vector<float> out(pixels() * features());
    implementation.self_attention(with_pointers(out.data()), runtime);
    return out;
  }
  SelfAttentionArgs with_pointers(float* out) const {
    SelfAttentionArgs all = args;
    all.qkv = qkv.data();
    all.bias = or_null(bias);
    all.mask = or_null(mask);
    all.out = out;
    return all;
  }

  SelfAttentionArgs args;
  std::vector<float> qkv, bias, grad_out;
  std::vector<uint8_t> mask;
};

struct Result {
  std::vector<double> qkv, bias;
};

Result run(const Implementation& implementation, const Problem& p, int workers = 1) {
  std::vector<float> out = p.forward(implementation);
  ThreadRuntime runtime(workers);
  GuardedOutput<float> qkv(p.qkv.size()), bias(p.bias.size());
  implementation.self_attention_backward({.forward = p.with_pointers(out.data()),
                                          .grad_out = p.grad_out.data(),
                                          .grad_qkv = qkv.data(),
                                          .grad_bias = p.bias.empty() ? nullptr : bias.data()},
                                         runtime);
  Result result{collect_rows(qkv, 1, qkv.size(), qkv.size()),
                collect_rows(bias, 1, bias.size(), bias.size())};
  EXPECT_TRUE(qkv.intact() && bias.intact()) << "written outside an output";
  return result;
}

std::string text(const Problem& p) {
  return fmt::format("[batch {}, {} x {}, window {} x {}, heads {}, dim {}, bias {}, mask {}]",
                     p.args.batch, p.args.height, p.args.width, p.args.window_h, p.args.window_w,
                     p.args.heads, p.args.head_dim, !p.bias.empty(), !p.mask.empty());
}

void compare(const Problem& problem) {
  const Implementation& reference = implementations().front();
  const Result expected = run(reference, problem);
  // Sums over the tokens and dims of terms of order 1, and for the table over all windows.
  const double terms = static_cast<double>(problem.args.window_h * problem.args.window_w +
                                           problem.args.head_dim + 16);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(fmt::format("{} {}", implementation->name, text(problem)));
    const Result one = run(*implementation, problem);
    EXPECT_TRUE(near_by_scale(one.qkv, expected.qkv, 4 * terms * 0x1p-24)) << "qkv";
    EXPECT_TRUE(near_by_scale(one.bias, expected.bias, 8 * terms * 0x1p-24)) << "bias";
    for (const int workers : {2, 3}) {
      const Result many = run(*implementation, problem, workers);
      EXPECT_EQ(many.qkv, one.qkv) << workers << " workers";
      EXPECT_EQ(many.bias, one.bias) << workers << " workers";
    }
  }
}

TEST(SelfAttentionBackward, EveryWindowOnEveryMap) {
  for (const Size map : {Size{1, 1}, {1, 7}, {5, 3}, {14, 14}, {15, 9}})
    for (const Size window : {Size{1, 1}, {2, 3}, {7, 7}, {14, 14}})
      for (const bool bias : {false, true})
        for (const bool mask : {false, true}) compare({2, map, window, 2, 5, bias, mask});
}

TEST(SelfAttentionBackward, EveryTailOfTheDimension) {
  for (const int64_t dim : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33})
    compare({1, {5, 6}, {3, 4}, 3, dim, true, true});
}

// More tokens than a chunk of queries holds.
TEST(SelfAttentionBackward, LargeWindow) { compare({1, {24, 25}, {24, 25}, 1, 16, true, true}); }

TEST(SelfAttentionBackward, NothingToAttendTo) {
  Problem problem(1, {4, 4}, {2, 2}, 2, 8, true, true);
  std::fill(problem.mask.begin(), problem.mask.end(), 0);
  // What a masked pixel holds as a key and value does not matter; a query it still is.
  for (size_t i = 0; i < problem.qkv.size(); ++i) {
    if (i / problem.features() % 3 != 0) {
      problem.qkv[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    const Result result = run(implementation, problem);
    for (const double value : result.qkv) EXPECT_EQ(value, 0) << implementation.name;
    for (const double value : result.bias) EXPECT_EQ(value, 0) << implementation.name;
  }
}

// The loss is <out, grad_out>. The forward pass answers in float32: an error of 6e-8 of each term,
// divided by a step of 2^-7 twice; and the square of the step.
TEST(SelfAttentionBackward, ReferenceAgainstDifferences) {
  Problem problem(1, {3, 4}, {2, 3}, 2, 3, true, true);
  const Implementation& reference = implementations().front();
  const Result gradients = run(reference, problem);
  const auto loss = [&] {
    const std::vector<float> out = problem.forward(reference);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      sum += static_cast<double>(out[i]) * problem.grad_out[i];
    }
    return sum;
  };
  const auto check = [&](std::vector<float>& input, const std::vector<double>& gradient) {
    for (size_t i = 0; i < input.size(); ++i) {
      const float before = input[i];
      input[i] = before + 0.0078125f;
      const double up = input[i], above = loss();
      input[i] = before - 0.0078125f;
      const double down = input[i], below = loss();
      input[i] = before;
      EXPECT_NEAR(gradient[i], (above - below) / (up - down), 5e-4) << i;
    }
  };
  check(problem.qkv, gradients.qkv);
  check(problem.bias, gradients.bias);
}

}  // namespace
}  // namespace qna::kernels::testing
