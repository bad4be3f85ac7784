// The attention branch as an operator: its row of the sweep.
#include "qna/ops/window_self_attention_branch.h"

#include "qna/ops/operator_sweep_testonly.h"

namespace qna::ops::testing {
namespace {

// A case's kernel is the window. Scores are small, so that differences are near their slope.
Arguments random_attention_branch(const Case& c) {
  const auto [batch, height, width] = c.map;
  const auto [window_h, window_w] = c.geometry.kernel_size;
  const int64_t heads = c.widths.heads, features = heads * c.widths.dim;
  return {{random_map("x", {batch, height, width, features}),
           random_table("norm_weight", {features}), random_table("norm_bias", {features}),
           random_weight("qkv_weight", {3 * features, features}, 4 * features),
           random_weight("proj_weight", {features, features}, features),
           random_table("bias", {heads, 2 * window_h - 1, 2 * window_w - 1}, c.parts.bias),
           random_mask(c), drop_factor(c)}};
}

Function by_attention_branch(decltype(window_self_attention_branch)* form) {
  return [form](const Arguments& in, const Case& c) {
    return form(in["x"],
                {in["norm_weight"], in["norm_bias"], in["qkv_weight"], in["proj_weight"],
                 in.optional("bias"), c.widths.heads, c.geometry.kernel_size},
                in.optional("mask"), in.optional("drop_factor"));
  };
}

Case branch_case(const char* what, std::array<int64_t, 3> map, int64_t heads, int64_t dim,
                 std::array<int64_t, 2> window, Parts parts = {}) {
  return {what, map, {.heads = heads, .dim = dim}, {.kernel_size = window}, parts};
}

Operator attention_branch_operator() {
  return {
      .name = "window_self_attention_branch",
      .cases = {branch_case("windows that divide the map", {2, 4, 6}, 3, 4, {2, 3}),
                branch_case("windows cut off at the edges", {3, 5, 7}, 2, 8, {3, 4},
                            {.drop_factor = true}),
                branch_case("masked", {3, 5, 4}, 2, 5, {3, 4}, {.mask = true}),
                branch_case("masked, with factors", {3, 5, 4}, 2, 5, {3, 4},
                            {.mask = true, .drop_factor = true}),
                branch_case("no bias", {2, 4, 4}, 3, 3, {2, 2},
                            {.bias = false, .mask = true, .drop_factor = true}),
                branch_case("a map smaller than the window", {2, 3, 2}, 1, 8, {7, 7})},
      .large = {branch_case("many images", {5, 14, 14}, 4, 8, {7, 7},
                            {.mask = true, .drop_factor = true}),
                branch_case("more than are taken at a time", {20, 14, 14}, 4, 16, {14, 14})},
      .random = random_attention_branch,
      .run = by_attention_branch(window_self_attention_branch),
      .composite = by_attention_branch(window_self_attention_branch_composite),
      .definition = by_attention_branch(window_self_attention_branch_composite),
      // Without a kernel for 16 bits every step rounds; the norm's gradients are sums of rounded
      // terms.
      .tolerances = {.output = 1e-5,
                     .gradient = 1e-5,
                     .second = 1e-4,
                     .autocast_output = 0.1,
                     .autocast_gradient = 0.1,
                     .half_output = 25,
                     .half_gradient = 25,
                     .half_inference = 25},
      .type_under_autocast = at::kFloat,  // that of x, which is added
      .types_of_kernels = {at::kFloat},
      .mistaken = branch_case("", {2, 4, 4}, 2, 4, {3, 3}, {.mask = true, .drop_factor = true}),
      .mistakes = {{"rank of x",
                    [](Arguments& in, Case&) {
                      in["x"] = torch::zeros({4, 4, 8});
                    },
                    {"x", "[4, 4, 8]"}},
                   {"heads",
                    [](Arguments&, Case& c) { c.widths.heads = 3; },
                    {"heads", "(8)", "got 3"}},
                   {"norm_weight",
                    [](Arguments& in, Case&) { in["norm_weight"] = torch::zeros({7}); },
                    {"norm_weight", "[8]", "[7]"}},
                   {"qkv_weight",
                    [](Arguments& in, Case&) { in["qkv_weight"] = in["qkv_weight"].t(); },
                    {"qkv_weight", "[24, 8]", "[8, 24]"}},
                   {"proj_weight",
                    [](Arguments& in, Case&) {
                      in["proj_weight"] = torch::zeros({8, 9});
                    },
                    {"proj_weight", "[8, 8]", "[8, 9]"}},
                   {"window",
                    [](Arguments&, Case& c) {
                      c.geometry.kernel_size = std::array<int64_t, 2>{0, 2};
                    },
                    {"window", "0 x 2"}},
                   {"bias",
                    [](Arguments& in, Case&) { in["bias"] = in["bias"].narrow(2, 0, 4); },
                    {"bias", "at least 5", "[2, 5, 4]"}},
                   {"mask of floats",
                    [](Arguments& in, Case&) { in["mask"] = in["mask"].to(at::kFloat); },
                    {"mask", "bool"}},
                   {"drop_factor",
                    [](Arguments& in, Case&) { in["drop_factor"] = torch::zeros({3}); },
                    {"drop_factor", "[2]", "[3]"}}},
  };
}

INSTANTIATE_TEST_SUITE_P(WindowSelfAttentionBranch, OperatorSweep,
                         ::testing::Values(attention_branch_operator()));

}  // namespace
}  // namespace qna::ops::testing
