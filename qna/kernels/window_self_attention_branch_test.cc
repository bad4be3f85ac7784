// The attention branch in training: every implementation against the reference, the reference's
// gradients against finite differences, and the same bits for any number of workers.
#include "qna/kernels/window_self_attention_branch.h"

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

struct BranchShape {
  int64_t batch, height, width, heads, dim, window_h, window_w;
  int64_t features() const { return heads * dim; }
  int64_t rows() const { return batch * height * width; }
};

enum class Images { kAll, kSome, kNone };

struct BranchOptions {
  int64_t bias_margin = 0;  // of the bias table over the window; negative: no bias
  bool mask = false;
  Images keep = Images::kAll;
};

// T is float: by the implementation that is forced; double: by the reference.
template <typename T>
struct AttentionBranchProblem {
  AttentionBranchProblem(const BranchShape& s, const BranchOptions& o)
      : shape(s),
        options(o),
        bias_h(o.bias_margin < 0 ? 0 : s.window_h + o.bias_margin),
        bias_w(o.bias_margin < 0 ? 0 : s.window_w + o.bias_margin / 2),
        x(cells(s.rows() * s.features(), 1)),
        norm_weight(cells(s.features(), 2)),
        norm_bias(cells(s.features(), 3)),
        qkv_weight(cells(3 * s.features() * s.features(), 4, fan_in(s.features()))),
        proj_weight(cells(s.features() * s.features(), 5, fan_in(s.features()))),
        grad_y(cells(s.rows() * s.features(), 6)) {
    if (o.bias_margin >= 0) bias = cells(s.heads * (2 * bias_h - 1) * (2 * bias_w - 1), 7);
    if (o.mask) mask = random_mask(s.rows(), 8);
    for (int64_t i = 0; i < s.batch; ++i) {
      if (o.keep == Images::kSome) drop_factor.push_back(i % 3 == 1 ? 0 : 1.25f + 0.25f * (i % 2));
      if (o.keep == Images::kNone) drop_factor.push_back(0);
    }
  }
  static std::vector<T> cells(int64_t count, uint32_t seed, float scale = 1) {
    const std::vector<float> floats = normal_floats(count, seed, scale);
    return {floats.begin(), floats.end()};
  }

  Results run(int workers = 1) const {
    using Output = GuardedOutput<T>;
    const WindowSelfAttentionBranchInputs<T> in{.batch = shape.batch,
                                                .height = shape.height,
                                                .width = shape.width,
                                                .features = shape.features(),
                                                .heads = shape.heads,
                                                .window_h = std::min(shape.window_h, shape.height),
                                                .window_w = std::min(shape.window_w, shape.width),
                                                .epsilon = 1e-6,
                                                .x = x.data(),
                                                .norm_weight = norm_weight.data(),
                                                .norm_bias = norm_bias.data(),
                                                .qkv_weight = qkv_weight.data(),
                                                .proj_weight = proj_weight.data(),
                                                .bias = or_null(bias),
                                                .bias_h = bias_h,
                                                .bias_w = bias_w,
                                                .mask = or_null(mask),
                                                .drop_factor = or_null(drop_factor)};
    const int64_t features = shape.features(), map = shape.rows() * features,
                  weights = features * features, table = static_cast<int64_t>(bias.size());
    ThreadRuntime runtime(workers);
    Output qkv("qkv", 3 * map), mixed("mixed", map), y("y", map), dx("x", map),
        dg("norm weight", features), ds("norm bias", features), dqkv("qkv weight", 3 * weights),
        dproj("proj weight", weights), db("bias", table);
    const WindowSelfAttentionBranchArgs<T> forward{in, qkv.data(), mixed.data(), y.data()};
    const WindowSelfAttentionBranchBackwardArgs<T> backward{
        in,        qkv.data(), mixed.data(), grad_y.data(), dx.data(),
        dg.data(), ds.data(),  dqkv.data(),  dproj.data(),  bias.empty() ? nullptr : db.data()};
    if constexpr (std::is_same_v<T, float>) {
      window_self_attention_branch(forward, runtime);
      window_self_attention_branch_backward(backward, runtime);
    } else {
      window_self_attention_branch_reference(forward, runtime);
      window_self_attention_branch_backward_reference(backward, runtime);
    }
    Results results{
        sums_of(shape.rows()),
        {y.take(), dx.take(), dg.take(), ds.take(), dqkv.take(), dproj.take(), db.take()}};
    for (Part* part : {&results.parts[0], &results.parts[1]}) {
      part->tolerance = sums_of(4 * features + in.window_h * in.window_w);
    }
    // In windows of one pixel it is the difference of two equal sums of `dim` products.
    results.parts.back().tolerance.absolute =
        4 * static_cast<double>(shape.rows() * shape.dim) * 0x1p-24;
    return results;
  }

  // Of that many products of order 1, in float32; errors of qkv come through the softmax.
  static Tolerance sums_of(int64_t terms) {
    return {.by_scale = 8 * static_cast<double>(terms + 64) * 0x1p-24};
  }

  std::string text() const {
    return fmt::format("{} x {} x {}, {} heads of {}, window {} x {}, bias {}, mask {}, keep {}",
                       shape.batch, shape.height, shape.width, shape.heads, shape.dim,
                       shape.window_h, shape.window_w, options.bias_margin, options.mask,
                       static_cast<int>(options.keep));
  }

  BranchShape shape;
  BranchOptions options;
  int64_t bias_h, bias_w;
  std::vector<T> x, norm_weight, norm_bias, qkv_weight, proj_weight, grad_y, bias, drop_factor;
  std::vector<uint8_t> mask;
};

struct WindowSelfAttentionBranch {
  using Problem = AttentionBranchProblem<float>;

  static void near(const auto& visit) {
    const std::pair<int64_t, int64_t> heads[] = {{1, 1}, {1, 3},  {2, 3}, {3, 4},
                                                 {2, 8}, {1, 17}, {4, 8}, {3, 11}};
    const std::pair<int64_t, int64_t> windows[] = {{1, 1}, {2, 3}, {7, 7}};
    for (const auto [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {1, 5}, {4, 3}, {7, 9}})
      for (const auto [window_h, window_w] : windows)
        for (const auto [count, dim] : heads) {
          visit("tails of the tiles, edges of the map",
                Problem({1, height, width, count, dim, window_h, window_w}, {}), {2});
        }
    for (const int64_t margin : {-1, 0, 3})
      for (const bool mask : {false, true})
        for (const Images keep : {Images::kAll, Images::kSome, Images::kNone})
          for (const BranchShape& s :
               {BranchShape{5, 4, 6, 2, 8, 3, 4}, {2, 7, 7, 3, 5, 7, 7}, {7, 3, 3, 4, 8, 2, 2}}) {
            visit("options", Problem(s, {margin, mask, keep}), {2});
          }
  }

  // More images than are taken at a time, an image that takes more than that, wide layers.
  static void bits(const auto& visit) {
    for (const BranchShape& s :
         {BranchShape{7, 28, 28, 4, 16, 14, 14}, {2, 120, 70, 2, 16, 5, 5}, {9, 7, 7, 2, 80, 7, 7}})
      for (const Images keep : {Images::kAll, Images::kSome}) {
        visit("many images, large images, wide layers", Problem(s, {.keep = keep}));
      }
  }

  static Problem nothing() { return {{0, 5, 4, 2, 3, 2, 2}, {}}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(WindowSelfAttentionBranch, Operator, WindowSelfAttentionBranch);

TEST(WindowSelfAttentionBranch, ReferenceAgainstFiniteDifferences) {
  for (const bool mask : {false, true}) {
    AttentionBranchProblem<double> p({3, 3, 2, 2, 2, 2, 2},
                                     {.bias_margin = 1, .mask = mask, .keep = Images::kSome});
    SCOPED_TRACE(p.text());
    expect_gradients<double>(p.run(),
                             {{"x", &p.x},
                              {"norm weight", &p.norm_weight},
                              {"norm bias", &p.norm_bias},
                              {"qkv weight", &p.qkv_weight},
                              {"proj weight", &p.proj_weight},
                              {"bias", &p.bias}},
                             [&] { return dot(p.run()["y"], p.grad_y); }, 1e-5, {.absolute = 1e-6});
  }
}

// What is dropped is not looked at: it may hold anything.
TEST(WindowSelfAttentionBranch, DroppedImagesAreNotComputed) {
  const AttentionBranchProblem<float> clean({4, 4, 5, 2, 4, 3, 3}, {.keep = Images::kSome});
  AttentionBranchProblem<float> problem = clean;  // the second image is dropped
  const int64_t image = 4 * 5 * 8;
  std::fill_n(problem.x.begin() + image, image, kNan);
  for_each_implementation([&] {
    const Results expected = clean.run(), found = problem.run();
    for (const Part& part : found.parts) {
      std::vector<double> cells = part.cells;
      if (part.name == std::string_view("y")) {
        EXPECT_EQ(count_nan(cells), image);
        std::copy_n(expected["y"].begin() + image, image, cells.begin() + image);
      }
      EXPECT_TRUE(same_bits(cells, expected[part.name])) << part.name;
    }
  });
}

}  // namespace
}  // namespace qna::kernels::testing
