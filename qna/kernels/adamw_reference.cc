#include <cmath>

#include "qna/kernels/adamw.h"

namespace qna::kernels {

double gradient_square_sum_reference(std::span<const AdamWParameter> parameters, Runtime&) {
  double sum = 0;
  for (const AdamWParameter& p : parameters)
    for (int64_t i = 0; p.gradient != nullptr && i < p.count; ++i) {
      sum += static_cast<double>(p.gradient[i]) * p.gradient[i];
    }
  return sum;
}

void adamw_reference(const AdamWArgs& args, Runtime&) {
  const auto lerp = [](double from, double to, double share) { return from + share * (to - from); };
  for (const AdamWParameter& p : args.parameters) {
    const double correction1 = 1 - std::pow(args.betas[0], p.step);
    const double correction2 = 1 - std::pow(args.betas[1], p.step);
    for (int64_t i = 0; i < p.count; ++i) {
      double weight = p.weight[i];
      if (p.gradient != nullptr) {
        const double gradient = args.gradient_factor * p.gradient[i];
        const double mean = lerp(p.mean[i], gradient, 1 - args.betas[0]);
        const double square = lerp(p.square_mean[i], gradient * gradient, 1 - args.betas[1]);
        weight -= p.lr * p.decay * weight;
        weight -= p.lr * (mean / correction1) / (std::sqrt(square / correction2) + args.epsilon);
        p.mean[i] = static_cast<float>(mean);
        p.square_mean[i] = static_cast<float>(square);
        p.weight[i] = static_cast<float>(weight);
      }
      if (p.average != nullptr) {
        p.average[i] = static_cast<float>(lerp(p.average[i], weight, 1 - args.average_decay));
      }
    }
  }
}

}  // namespace qna::kernels
