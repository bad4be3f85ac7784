// Attention between sequences of every implementation against the reference.
#include "qna/kernels/multihead_attention.h"

#include "qna/kernels/network_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

struct SequenceOptions {
  int64_t batch = 1;
  bool mask = false;
  bool weights = false;  // wanted
  int64_t gap = 0;       // floats between rows
  float scale = 1;       // of the scores, which are of order 1 without it
};

struct SequenceProblem {
  SequenceProblem(int64_t queries, int64_t keys, int64_t heads, int64_t dim,
                  const SequenceOptions& options_in = {})
      : options(options_in),
        args{.batch = options.batch,
             .queries = queries,
             .keys = keys,
             .heads = heads,
             .head_dim = dim,
             .q = nullptr,
             .q_stride = heads * dim + options.gap,
             .k = nullptr,
             .k_stride = heads * dim + 2 * options.gap,
             .v = nullptr,
             .v_stride = heads * dim + 3 * options.gap,
             .scale = options.scale / std::sqrt(static_cast<float>(dim)),
             .out = nullptr} {
    q = rows(args.batch * queries, args.q_stride, 1);
    k = rows(args.batch * keys, args.k_stride, 2);
    v = rows(args.batch * keys, args.v_stride, 3);
    if (options.mask) mask = random_mask(args.batch * keys, 4);
  }

  // NaN between the rows; ends with the last element but for the gap behind it.
  OddInput<float> rows(int64_t count, int64_t stride, uint32_t seed) const {
    std::vector<float> cells = normal_floats(count * stride, seed);
    for (int64_t i = 0; i < count * stride; ++i) {
      if (i % stride >= args.heads * args.head_dim) cells[i] = kNan;
    }
    return cells;
  }

  // The outputs, then the weights.
  std::vector<double> run(const Implementation& implementation, int workers) const {
    ThreadRuntime runtime(workers);
    MultiheadAttentionArgs all = args;
    all.q = q.data();
    all.k = k.data();
    all.v = v.data();
    all.mask = mask.or_null();
    std::vector<double> weights;
    std::vector<double> out = collect_guarded<float>(
        args.batch * args.queries * args.heads * args.head_dim, [&](float* to) {
          all.out = to;
          if (!options.weights) {
            implementation.multihead_attention(all, runtime);
            return;
          }
          weights =
              collect_guarded<float>(args.batch * args.queries * args.keys, [&](float* cells) {
                all.weights = cells;
                implementation.multihead_attention(all, runtime);
              });
        });
    out.insert(out.end(), weights.begin(), weights.end());
    return out;
  }

  SequenceProblem image(int64_t b) const {
    SequenceProblem one = *this;
    one.args.batch = 1;
    one.q = q.part(b, q.size() / args.batch);
    one.k = k.part(b, k.size() / args.batch);
    one.v = v.part(b, v.size() / args.batch);
    one.mask = mask.part(b, mask.size() / args.batch);
    return one;
  }

  std::string text() const {
    return fmt::format("batch {}, {} queries, {} keys, {} heads of {}, mask {}, weights {}, gap {}",
                       args.batch, args.queries, args.keys, args.heads, args.head_dim, options.mask,
                       options.weights, options.gap);
  }

  // As in self_attention_test.cc.
  double tolerance() const {
    return 20 * std::sqrt(static_cast<double>(args.keys + args.head_dim)) * 0x1p-24;
  }

  SequenceOptions options;
  MultiheadAttentionArgs args;  // but for the pointers
  OddInput<float> q, k, v;
  OddInput<uint8_t> mask;  // empty: none
};

void compare(const SequenceProblem& problem, double more = 0) {
  compare_all(problem, problem.tolerance() + more);
}

constexpr SequenceOptions kOptions[] = {
    {},
    {.mask = true},
    {.batch = 2, .weights = true, .gap = 3},
    {.batch = 3, .mask = true, .weights = true, .scale = 3},
    {.batch = 2, .mask = true, .gap = 16},
};

TEST(MultiheadAttention, Sizes) {
  size_t round = 0;  // the options take turns
  for (const int64_t queries : {1, 5, 7, 30})
    for (const int64_t keys : {1, 2, 16, 17, 70})
      for (const int64_t heads : {1, 3})
        for (const int64_t dim : {1, 3, 8, 16, 32, 40}) {
          compare({queries, keys, heads, dim, kOptions[round++ % std::size(kOptions)]});
          if (HasFailure()) return;
        }
}

TEST(MultiheadAttention, EveryTail) {
  for (int64_t count = 1; count <= 70 && !HasFailure(); ++count)
    for (const SequenceOptions& options : kOptions) {
      compare({3, count, 2, 5, options});
      compare({4, 9, 2, count, options});
    }
}

// Queries in many chunks.
TEST(MultiheadAttention, ManyKeys) { compare({250, 1500, 2, 8, {.mask = true, .weights = true}}); }

TEST(MultiheadAttention, SameBitsForAnyWorkersAndAlone) {
  for (SequenceOptions options : kOptions) {
    const SequenceProblem problem(120, 90, 4, 12, options);
    expect_same_bits_for_any_workers(problem);
    if (!options.weights) expect_same_bits_alone(problem, options.batch);
  }
}

// Outputs and weights of an image alone, and the outputs without the weights.
TEST(MultiheadAttention, WeightsChangeNothing) {
  const SequenceProblem with(50, 90, 3, 12, {.batch = 2, .mask = true, .weights = true});
  SequenceProblem without = with;
  without.options.weights = false;
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> both = with.run(*implementation, 2);
    const std::vector<double> out = without.run(*implementation, 3);
    EXPECT_EQ(out, std::vector<double>(both.begin(), both.begin() + out.size()));
    const std::vector<double> second = with.image(1).run(*implementation, 1);
    const auto half = static_cast<int64_t>(out.size()) / 2;
    EXPECT_EQ(std::vector<double>(second.begin(), second.begin() + half),
              std::vector<double>(out.begin() + half, out.end()));
    const int64_t cells = 50 * 90;
    EXPECT_EQ(std::vector<double>(second.end() - cells, second.end()),
              std::vector<double>(both.end() - cells, both.end()));
  }
}

// Each query's weights are a mean of distributions.
TEST(MultiheadAttention, WeightsSumToOne) {
  const SequenceProblem problem(20, 33, 3, 12, {.mask = true, .weights = true});
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> all = problem.run(*implementation, 1);
    for (int64_t i = 0; i < 20; ++i) {
      double sum = 0;
      for (int64_t m = 0; m < 33; ++m) sum += all[20 * 36 + i * 33 + m];
      EXPECT_NEAR(sum, 1, 33 * 0x1p-23);
    }
  }
}

TEST(MultiheadAttention, MaskedKeysDoNotMatter) {
  const SequenceProblem clean(9, 21, 2, 5, {.batch = 2, .mask = true, .weights = true});
  for (const float poison : {kInfinity, kNan, -3e38f}) {
    SequenceProblem problem = clean;
    for (int64_t m = 0; m < 2 * 21; ++m) {
      if (problem.mask[m] != 0) continue;
      std::fill_n(problem.k.data() + m * 10, 10, poison);
      std::fill_n(problem.v.data() + m * 10, 10, poison);
    }
    for (const Implementation& implementation : implementations()) {
      if (!implementation.supported) continue;
      EXPECT_EQ(problem.run(implementation, 1), clean.run(implementation, 1))
          << implementation.name << " " << poison;
    }
  }
}

TEST(MultiheadAttention, AnImageWithoutKeysGivesZero) {
  SequenceProblem problem(9, 21, 2, 5, {.batch = 2, .mask = true, .weights = true});
  std::fill_n(problem.mask.data() + 21, 21, 0);
  compare(problem);
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> all = problem.run(*implementation, 1);
    EXPECT_TRUE(std::all_of(all.begin() + 90, all.begin() + 180, [](double v) { return v == 0; }));
    EXPECT_EQ(SequenceProblem(9, 0, 2, 5).run(*implementation, 2), std::vector<double>(90, 0));
  }
}

TEST(MultiheadAttention, Nothing) {
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_TRUE(SequenceProblem(9, 21, 2, 5, {.batch = 0}).run(*implementation, 2).empty());
    EXPECT_TRUE(SequenceProblem(0, 21, 2, 5).run(*implementation, 2).empty());
  }
}

// A NaN goes where the formula takes it, and no further; so does a score of +inf, which makes its
// query's outputs NaN.
TEST(MultiheadAttention, NanAndInfinity) {
  for (const float poison : {kNan, kInfinity, -kInfinity})
    for (const int part : {0, 1, 2}) {
      SequenceProblem problem(9, 21, 2, 5, {.batch = 2, .weights = true});
      OddInput<float>& rows = part == 0 ? problem.q : part == 1 ? problem.k : problem.v;
      rows[3 * 10 + 7] = poison;
      SCOPED_TRACE(fmt::format("{} in part {}", poison, part));
      compare(problem);
    }
}

// Products of this size are off by 2^-23 of it, and the weights by as much.
TEST(MultiheadAttention, LargeScores) {
  for (const float scale : {30.0f, 1e4f}) {
    compare({9, 21, 2, 8, {.weights = true, .scale = scale}}, 8 * scale * 0x1p-23);
  }
}

}  // namespace
}  // namespace qna::kernels::testing
