// halo_attention against other kernels where they compute the same, and against its formula.
#include "qna/kernels/halo_attention.h"

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

// Both in double, rounded to float32 once.
constexpr Tolerance kTolerance = {.absolute = 4 * 0x1p-24, .relative = 4 * 0x1p-24};

struct HaloProblem {
  explicit HaloProblem(const HaloAttentionArgs& args_in, bool masked = false) : args(args_in) {
    args.k_stride = features() + 3;
    args.v_stride = features() + 5;
    args.scale = 1 / std::sqrt(static_cast<float>(args.head_dim));
    q = normal_floats(queries() * features(), 1);
    k = normal_floats(pixels() * args.k_stride, 2);
    v = normal_floats(pixels() * args.v_stride, 3);
    bias = normal_floats(table_h() * table_w() * args.heads, 4);
    if (masked) mask = random_mask(pixels(), 5);
  }

  int64_t features() const { return args.heads * args.head_dim; }
  int64_t pixels() const { return args.batch * args.height * args.width; }
  int64_t query_h() const { return (args.height + args.stride_h - 1) / args.stride_h; }
  int64_t query_w() const { return (args.width + args.stride_w - 1) / args.stride_w; }
  int64_t queries() const { return args.batch * query_h() * query_w(); }
  int64_t table_h() const { return 2 * args.block_h + 2 * args.halo_h - args.stride_h; }
  int64_t table_w() const { return 2 * args.block_w + 2 * args.halo_w - args.stride_w; }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    return one_output(queries() * features(), kTolerance, [&](float* out) {
      HaloAttentionArgs all = args;
      all.q = q.data();
      all.k = k.data();
      all.v = v.data();
      all.bias = bias.data();
      all.mask = or_null(mask);
      all.out = out;
      halo_attention(all, runtime);
    });
  }

  // By the formula: each query for itself, asking every pixel whether it is a key.
  std::vector<double> expected() const {
    const int64_t dim = args.head_dim;
    std::vector<double> out;
    for (int64_t n = 0; n < queries(); ++n)
      for (int64_t head = 0; head < args.heads; ++head) {
        const int64_t image = n / (query_h() * query_w());
        const int64_t y = n / query_w() % query_h() * args.stride_h;
        const int64_t x = n % query_w() * args.stride_w;
        std::vector<double> sums(dim, 0.0);
        double total = 0;
        for (int64_t i = 0; i < args.height; ++i)
          for (int64_t j = 0; j < args.width; ++j) {
            const int64_t pixel = (image * args.height + i) * args.width + j;
            const int64_t top = y / args.block_h * args.block_h;
            const int64_t left = x / args.block_w * args.block_w;
            if (i < top - args.halo_h || i >= top + args.block_h + args.halo_h) continue;
            if (j < left - args.halo_w || j >= left + args.block_w + args.halo_w) continue;
            if (mask.size() > 0 && mask.data()[pixel] == 0) continue;
            double score = 0;
            for (int64_t c = 0; c < dim; ++c) {
              score += args.scale * q.data()[n * features() + head * dim + c] *
                       k.data()[pixel * args.k_stride + head * dim + c];
            }
            // The largest offset is from a block's first query to the halo's last key.
            const int64_t from_end_h = args.block_h + args.halo_h - 1 - (i - y);
            const int64_t from_end_w = args.block_w + args.halo_w - 1 - (j - x);
            const int64_t cell =
                (table_h() - 1 - from_end_h) * table_w() + table_w() - 1 - from_end_w;
            const double weight = std::exp(score + bias.data()[cell * args.heads + head]);
            total += weight;
            for (int64_t c = 0; c < dim; ++c) {
              sums[c] += weight * v.data()[pixel * args.v_stride + head * dim + c];
            }
          }
        for (const double sum : sums) out.push_back(total == 0 ? 0 : sum / total);
      }
    return out;
  }

  HaloAttentionArgs args;  // but for the pointers
  OddInput<float> q, k, v, bias;
  OddInput<uint8_t> mask;  // empty: none
};

HaloAttentionArgs sizes(int64_t batch, int64_t height, int64_t width, int64_t block, int64_t halo,
                        int64_t stride) {
  HaloAttentionArgs args{};
  args.batch = batch;
  args.height = height;
  args.width = width;
  args.heads = 2;
  args.head_dim = 5;
  args.block_h = block;
  args.block_w = 2 * block;
  args.halo_h = halo;
  args.halo_w = halo + 1;
  args.stride_h = stride;
  args.stride_w = 2 * stride;
  return args;
}

TEST(HaloAttention, MapsBlocksAndStrides) {
  for (const int64_t height : {1, 4, 9})
    for (const int64_t width : {1, 8, 13})
      for (const int64_t block : {2, 4, 12})
        for (const int64_t halo : {0, 1, 3})
          for (const int64_t stride : {1, 2})
            for (const bool masked : {false, true}) {
              const HaloProblem problem(sizes(2, height, width, block, halo, stride), masked);
              EXPECT_TRUE(near(problem.run().cells(), problem.expected(), kTolerance))
                  << height << " x " << width << " block " << block << " halo " << halo
                  << " stride " << stride << " masked " << masked;
            }
}

// Without halo and stride it is self-attention in windows.
TEST(HaloAttention, WithoutHaloWindowSelfAttention) {
  HaloAttentionArgs args = sizes(2, 6, 9, 3, 0, 1);
  args.halo_w = 0;
  args.stride_w = 1;
  const HaloProblem problem(args, true);
  std::vector<float> qkv;
  for (int64_t n = 0; n < problem.pixels(); ++n) {
    const auto add = [&](const float* row) { qkv.insert(qkv.end(), row, row + 10); };
    add(problem.q.data() + n * 10);
    add(problem.k.data() + n * problem.args.k_stride);
    add(problem.v.data() + n * problem.args.v_stride);
  }
  std::vector<float> bias;  // heads first
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t i = head; i < problem.bias.size(); i += 2) bias.push_back(problem.bias.data()[i]);
  ThreadRuntime runtime;
  const Results expected = one_output(problem.pixels() * 10, kTolerance, [&](float* out) {
    window_self_attention_reference<float>({.batch = 2,
                                            .height = 6,
                                            .width = 9,
                                            .heads = 2,
                                            .head_dim = 5,
                                            .window_h = 3,
                                            .window_w = 6,
                                            .qkv = qkv.data(),
                                            .scale = problem.args.scale,
                                            .bias = bias.data(),
                                            .bias_h = 3,
                                            .bias_w = 6,
                                            .mask = problem.mask.data(),
                                            .out = out},
                                           runtime);
  });
  expect_near(problem.run(), expected);
}

TEST(HaloAttention, SameBitsForAnyWorkers) {
  const HaloProblem problem(sizes(2, 9, 13, 4, 1, 1), true);
  for (const int workers : {2, 3, 8}) EXPECT_TRUE(same_bits(problem.run(workers), problem.run()));
}

TEST(HaloAttention, ABlockWithoutKeysGivesZero) {
  HaloProblem problem(sizes(2, 9, 13, 4, 1, 1), true);
  std::fill_n(problem.mask.data() + 9 * 13, 9 * 13, 0);
  const std::vector<double> out = problem.run().cells();
  EXPECT_TRUE(near(out, problem.expected(), kTolerance));
  EXPECT_EQ(part_of(out, 1, 2), std::vector<double>(out.size() / 2, 0));
}

TEST(HaloAttention, MaskedPixelsDoNotMatter) {
  const HaloProblem clean(sizes(1, 9, 13, 4, 1, 1), true);
  HaloProblem problem = clean;
  for (int64_t n = 0; n < problem.pixels(); ++n) {
    if (problem.mask[n] != 0) continue;
    std::fill_n(problem.k.data() + n * problem.args.k_stride, 10, kNan);
    std::fill_n(problem.v.data() + n * problem.args.v_stride, 10, kInfinity);
  }
  EXPECT_TRUE(same_bits(problem.run(), clean.run()));
}

TEST(HaloAttention, NoImage) {
  EXPECT_TRUE(HaloProblem(sizes(0, 9, 13, 4, 1, 1)).run(2).cells().empty());
}

}  // namespace
}  // namespace qna::kernels::testing
