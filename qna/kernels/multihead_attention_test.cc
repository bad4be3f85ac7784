// Attention between sequences of every implementation against the reference.
#include "qna/kernels/multihead_attention.h"

#include "qna/kernels/sweep_testonly.h"

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
    // As in window_self_attention_test.cc.
    tolerance.absolute = 20 * std::sqrt(static_cast<double>(keys + dim)) * 0x1p-24;
  }

  // NaN between the rows; ends with the last element but for the gap behind it.
  OddInput<float> rows(int64_t count, int64_t stride, uint32_t seed) const {
    std::vector<float> cells = normal_floats(count * stride, seed);
    for (int64_t i = 0; i < count * stride; ++i) {
      if (i % stride >= args.heads * args.head_dim) cells[i] = kNan;
    }
    return cells;
  }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    GuardedOutput<float> out("out", args.batch * args.queries * args.heads * args.head_dim);
    GuardedOutput<float> weights("weights", args.batch * args.queries * args.keys);
    MultiheadAttentionArgs all = args;
    all.q = q.data();
    all.k = k.data();
    all.v = v.data();
    all.mask = or_null(mask);
    all.out = out.data();
    if (options.weights) all.weights = weights.data();
    multihead_attention(all, runtime);
    return {tolerance, {out.take(), weights.take(options.weights ? weights.size() : 0)}};
  }

  int64_t count() const { return args.batch; }
  SequenceProblem alone(int64_t image) const {
    SequenceProblem one = *this;
    one.args.batch = 1;
    one.q = part_of(q, image, count());
    one.k = part_of(k, image, count());
    one.v = part_of(v, image, count());
    one.mask = part_of(mask, image, count());
    return one;
  }

  void poison(int64_t key, float value) {
    std::fill_n(k.data() + key * args.k_stride, args.heads * args.head_dim, value);
    std::fill_n(v.data() + key * args.v_stride, args.heads * args.head_dim, value);
  }

  std::string text() const {
    return fmt::format("batch {}, {} queries, {} keys, {} heads of {}, mask {}, weights {}, gap {}",
                       args.batch, args.queries, args.keys, args.heads, args.head_dim, options.mask,
                       options.weights, options.gap);
  }

  SequenceOptions options;
  MultiheadAttentionArgs args;  // but for the pointers
  OddInput<float> q, k, v;
  OddInput<uint8_t> mask;  // empty: none
  Tolerance tolerance;
};

constexpr SequenceOptions kOptions[] = {
    {},
    {.mask = true},
    {.batch = 2, .weights = true, .gap = 3},
    {.batch = 3, .mask = true, .weights = true, .scale = 3},
    {.batch = 2, .mask = true, .gap = 16},
};

struct MultiheadAttention {
  using Problem = SequenceProblem;

  static void near(const auto& visit) {
    size_t round = 0;  // the options take turns
    for (const int64_t queries : {1, 5, 7, 30})
      for (const int64_t keys : {1, 2, 16, 17, 70})
        for (const int64_t heads : {1, 3})
          for (const int64_t dim : {1, 3, 8, 16, 32, 40}) {
            visit("sizes",
                  Problem(queries, keys, heads, dim, kOptions[round++ % std::size(kOptions)]));
          }
    for (int64_t count = 1; count <= 70; ++count)
      for (const SequenceOptions& options : kOptions) {
        visit("key tails", Problem(3, count, 2, 5, options));
        visit("dimension tails", Problem(4, 9, 2, count, options));
      }
    visit("queries in many chunks", Problem(250, 1500, 2, 8, {.mask = true, .weights = true}));
    // A NaN goes where the formula takes it, and no further; so does a score of +inf, which makes
    // its query's outputs NaN.
    for (const float poison : {kNan, kInfinity, -kInfinity})
      for (const int part : {0, 1, 2}) {
        Problem problem(9, 21, 2, 5, {.batch = 2, .weights = true});
        OddInput<float>& rows = part == 0 ? problem.q : part == 1 ? problem.k : problem.v;
        rows[3 * 10 + 7] = poison;
        visit(fmt::format("{} in part {}", poison, part), problem);
      }
    // Products of this size are off by 2^-23 of it, and the weights by as much.
    for (const float scale : {30.0f, 1e4f}) {
      Problem problem(9, 21, 2, 8, {.weights = true, .scale = scale});
      problem.tolerance.absolute += 8 * scale * 0x1p-23;
      visit("large scores", problem);
    }
  }

  static void bits(const auto& visit) {
    for (const SequenceOptions& options : kOptions) visit("bits", Problem(120, 90, 4, 12, options));
    visit("bits", Problem(50, 90, 3, 12, {.batch = 2, .mask = true, .weights = true}));
  }

  static void masked(const auto& visit) {
    visit("masked", Problem(9, 21, 2, 5, {.batch = 2, .mask = true, .weights = true}));
  }

  static Problem nothing() { return {9, 21, 2, 5, {.batch = 0}}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(MultiheadAttention, Operator, MultiheadAttention);
INSTANTIATE_TYPED_TEST_SUITE_P(MultiheadAttention, MaskedOperator, MultiheadAttention);

TEST(MultiheadAttention, WeightsChangeNothing) {
  const SequenceProblem with(50, 90, 3, 12, {.batch = 2, .mask = true, .weights = true});
  SequenceProblem without = with;
  without.options.weights = false;
  for_each_simd([&] { EXPECT_TRUE(same_bits(with.run(2)["out"], without.run(3)["out"])); });
}

// Each query's weights are a mean of distributions.
TEST(MultiheadAttention, WeightsSumToOne) {
  const SequenceProblem problem(20, 33, 3, 12, {.mask = true, .weights = true});
  for_each_simd([&] {
    const std::vector<double> weights = problem.run()["weights"];
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_NEAR(dot(part_of(weights, i, 20), std::vector<double>(33, 1)), 1, 33 * 0x1p-23);
    }
  });
}

TEST(MultiheadAttention, AnImageWithoutKeysGivesZero) {
  SequenceProblem problem(9, 21, 2, 5, {.batch = 2, .mask = true, .weights = true});
  std::fill_n(problem.mask.data() + 21, 21, 0);
  compare_all(problem);
  for_each_simd([&] {
    EXPECT_EQ(part_of(problem.run()["out"], 1, 2), std::vector<double>(90, 0));
    EXPECT_EQ(SequenceProblem(9, 0, 2, 5).run(2)["out"], std::vector<double>(90, 0));
  });
}

TEST(MultiheadAttention, NoQueries) {
  for_each_simd([] { EXPECT_TRUE(SequenceProblem(0, 21, 2, 5).run(2)["out"].empty()); });
}

}  // namespace
}  // namespace qna::kernels::testing
