// Self-attention in windows as an operator: fused against the ATen form in float64 and against a
// plain definition, gradients of gradients, dtypes without a kernel, and what it complains about.
#include "qna/ops/self_attention.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include "qna/ops/tensors_testonly.h"

namespace qna::ops::testing {
namespace {

struct Case {
  const char* what;
  std::array<int64_t, 4> sizes;  // [B, H, W, heads * dim]
  int64_t heads;
  std::array<int64_t, 2> window;
  bool bias, mask;
};

const Case kCases[] = {
    {"windows that divide the map", {2, 4, 6, 12}, 3, {2, 3}, true, false},
    {"windows cut off at the edges", {2, 5, 7, 16}, 2, {3, 4}, true, false},
    {"masked", {3, 5, 4, 10}, 2, {3, 4}, true, true},
    {"no bias", {1, 4, 4, 9}, 3, {2, 2}, false, true},
    {"a map smaller than the window", {2, 3, 2, 8}, 1, {7, 7}, true, false},
};

struct Inputs {
  explicit Inputs(const Case& c) {
    torch::manual_seed(7);
    qkv = torch::randn({c.sizes[0], c.sizes[1], c.sizes[2], 3 * c.sizes[3]});
    if (c.bias) bias = torch::randn({c.heads, 2 * c.window[0] - 1, 2 * c.window[1] - 1});
    if (c.mask) mask = torch::rand({c.sizes[0], c.sizes[1], c.sizes[2]}) > 0.3;
    upstream = torch::randn({c.sizes[0], c.sizes[1], c.sizes[2], c.sizes[3]});
  }
  Inputs as(at::ScalarType type) const {
    Inputs copy = *this;
    copy.qkv = leaf(qkv, type);
    copy.bias = leaf(bias, type);
    copy.upstream = upstream.to(type);
    return copy;
  }
  std::vector<at::Tensor> given() const {
    return bias.has_value() ? std::vector<at::Tensor>{qkv, *bias} : std::vector<at::Tensor>{qkv};
  }
  at::Tensor qkv, upstream;
  OptionalTensor bias, mask;
};

using Function = at::Tensor (*)(const at::Tensor&, int64_t, std::array<int64_t, 2>,
                                const OptionalTensor&, const OptionalTensor&);

// The output, then the gradients.
std::vector<at::Tensor> with_gradients(Function function, const Case& c, at::ScalarType type) {
  const Inputs in = Inputs(c).as(type);
  const at::Tensor y = function(in.qkv, c.heads, c.window, in.bias, in.mask);
  y.backward(in.upstream);
  std::vector<at::Tensor> all = {y};
  for (const at::Tensor& tensor : in.given()) all.push_back(tensor.grad());
  return all;
}

TEST(SelfAttentionOp, FusedIsTheCompositeForm) {
  for (const Case& c : kCases)
    for (const std::string& name : supported_implementations()) {
      SCOPED_TRACE(std::string(c.what) + ", " + name);
      const ForcedImplementation forced(name);
      const auto expected = with_gradients(self_attention_composite, c, at::kDouble);
      const auto actual = with_gradients(self_attention, c, at::kFloat);
      EXPECT_EQ(kernels::last_implementation(), name);
      expect_all_near(actual, expected, 1e-5);
      const torch::NoGradGuard no_grad;
      const Inputs in = Inputs(c).as(at::kFloat);
      EXPECT_TRUE(same(self_attention(in.qkv, c.heads, c.window, in.bias, in.mask), actual[0]));
    }
}

// One query at a time, from the definition in kernels/self_attention.h.
TEST(SelfAttentionOp, CompositeIsTheDefinition) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    const Inputs in = Inputs(c).as(at::kDouble);
    const int64_t dim = c.sizes[3] / c.heads;
    const at::Tensor parts =
        in.qkv.detach().view({c.sizes[0], c.sizes[1], c.sizes[2], 3, c.heads, dim});
    const at::Tensor expected = torch::zeros_like(in.upstream);
    for (int64_t b = 0; b < c.sizes[0]; ++b)
      for (int64_t y = 0; y < c.sizes[1]; ++y)
        for (int64_t x = 0; x < c.sizes[2]; ++x)
          for (int64_t head = 0; head < c.heads; ++head) {
            std::vector<at::Tensor> scores, values;
            const int64_t top = y / c.window[0] * c.window[0];
            const int64_t left = x / c.window[1] * c.window[1];
            for (int64_t ky = top; ky < std::min(c.sizes[1], top + c.window[0]); ++ky)
              for (int64_t kx = left; kx < std::min(c.sizes[2], left + c.window[1]); ++kx) {
                if (in.mask.has_value() && !(*in.mask)[b][ky][kx].item<bool>()) continue;
                at::Tensor score = (parts[b][y][x][0][head] * parts[b][ky][kx][1][head]).sum() /
                                   std::sqrt(static_cast<double>(dim));
                if (in.bias.has_value()) {
                  score =
                      score + (*in.bias)[head][c.window[0] - 1 + ky - y][c.window[1] - 1 + kx - x];
                }
                scores.push_back(score.detach());
                values.push_back(parts[b][ky][kx][2][head]);
              }
            if (scores.empty()) continue;
            const at::Tensor out =
                (torch::stack(scores).softmax(0).unsqueeze(1) * torch::stack(values)).sum(0);
            expected[b][y][x].narrow(0, head * dim, dim).copy_(out);
          }
    EXPECT_TRUE(near(self_attention_composite(in.qkv, c.heads, c.window, in.bias, in.mask),
                     expected, 1e-12));
  }
}

TEST(SelfAttentionOp, OtherDtypesAndAutocast) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    const auto expected = with_gradients(self_attention_composite, c, at::kDouble);
    expect_all_near(with_gradients(self_attention, c, at::kDouble), expected, 1e-12);
    expect_all_near(with_gradients(self_attention, c, at::kBFloat16), expected, 0.1);
    const Autocast autocast(at::kBFloat16);
    const auto lowered = with_gradients(self_attention, c, at::kFloat);
    EXPECT_EQ(lowered[0].scalar_type(), at::kBFloat16);  // as matmul under autocast
    expect_all_near(lowered, expected, 0.1);
  }
}

TEST(SelfAttentionOp, DoubleBackward) {
  const auto second = [](Function function, const Case& c, at::ScalarType type) {
    const Inputs in = Inputs(c).as(type);
    const at::Tensor y = function(in.qkv, c.heads, c.window, in.bias, in.mask);
    const auto first = torch::autograd::grad({y.pow(2).sum()}, in.given(), {}, std::nullopt,
                                             /*create_graph=*/true);
    at::Tensor sum = torch::zeros({}, type);
    for (const at::Tensor& gradient : first) sum = sum + gradient.pow(2).sum();
    return torch::autograd::grad({sum}, in.given());
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    expect_all_near(second(self_attention, c, at::kFloat),
                    second(self_attention_composite, c, at::kDouble), 1e-4);
  }
}

TEST(SelfAttentionOp, SameBitsForAnyNumberOfThreads) {
  const Case c{"", {3, 14, 14, 32}, 4, {7, 7}, true, true};
  const auto one = with_gradients(self_attention, c, at::kFloat);
  for (const int threads : {2, 3}) {
    const ThreadCount count(threads);
    const auto many = with_gradients(self_attention, c, at::kFloat);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same(many[i], one[i])) << i;
  }
}

TEST(SelfAttentionOp, Complaints) {
  const at::Tensor qkv = torch::zeros({1, 4, 4, 24});
  expect_complaint(
      [&] {
        self_attention(qkv, 5, {2, 2}, std::nullopt, std::nullopt);
      },
      {"qkv", "5 heads", "[1, 4, 4, 24]"});
  expect_complaint(
      [&] {
        self_attention(qkv, 2, {0, 2}, std::nullopt, std::nullopt);
      },
      {"window", "0 x 2"});
  expect_complaint(
      [&] {
        self_attention(qkv, 2, {3, 3}, torch::zeros({2, 5, 4}), std::nullopt);
      },
      {"bias", "at least 5", "[2, 5, 4]"});
  expect_complaint(
      [&] {
        self_attention(qkv, 2, {2, 2}, std::nullopt, torch::zeros({1, 4, 4}));
      },
      {"mask", "bool"});
}

}  // namespace
}  // namespace qna::ops::testing
