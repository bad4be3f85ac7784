// The reference's gradients against differences of its forward pass, in double.
#include "qna/kernels/sasa_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

// The loss is <out, grad_out>. Central differences: step^2 and 1e-16 / step are both 1e-10.
void compare_with_differences(SasaProblem<double> problem) {
  constexpr double kStep = 1e-5;
  const SasaResult gradients = run_reference(problem);
  ThreadRuntime runtime;
  const auto loss = [&] {
    std::vector<double> out(problem.windows * problem.shape.features());
    sasa_forward_reference(problem.args(out.data()), runtime);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * problem.grad_out[i];
    return sum;
  };
  const auto check = [&](std::vector<double>& input, const std::vector<double>& gradient,
                         const char* what) {
    for (size_t i = 0; i < input.size(); ++i) {
      const double before = input[i];
      input[i] = before + kStep;
      const double above = loss();
      input[i] = before - kStep;
      const double below = loss();
      input[i] = before;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-8) << what << " " << i;
    }
  };
  check(problem.q, gradients.grad_q, "q");
  check(problem.k, gradients.grad_k, "k");
  check(problem.v, gradients.grad_v, "v");
  check(problem.bias, gradients.grad_bias, "bias");
}

TEST(SasaGradient, ReferenceAgainstDifferences) {
  compare_with_differences(
      {padded({.height = 4, .width = 5, .heads = 2, .head_dim = 3}), {.mask = true}});
  compare_with_differences({{.batch = 2,
                             .height = 5,
                             .width = 4,
                             .heads = 1,
                             .head_dim = 2,
                             .kernel_h = 2,
                             .kernel_w = 3,
                             .stride_h = 2,
                             .pad_top = 1,
                             .pad_right = 3,
                             .dilation_w = 2},
                            {}});
}

}  // namespace
}  // namespace qna::kernels::testing
