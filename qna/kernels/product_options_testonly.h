// What stands before and behind a product with packed weights, for the tests of dense and
// convolution.
#pragma once

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {

inline constexpr Activation kActivations[] = {Activation::kNone,  Activation::kGeluTanh,
                                              Activation::kGelu,  Activation::kRelu,
                                              Activation::kRelu6, Activation::kSilu};

struct ProductOptions {
  bool bias = true;
  bool norm = false;
  Activation activation = Activation::kNone;
  Residual residual = Residual::kNone;
  float epsilon = 1e-6f;
};

inline std::string text(const ProductOptions& o) {
  return fmt::format("bias {}, norm {} {}, activation {}, residual {}", o.bias, o.norm, o.epsilon,
                     static_cast<int>(o.activation), static_cast<int>(o.residual));
}

inline std::vector<ProductOptions> all_product_options() {
  std::vector<ProductOptions> all;
  for (const bool bias : {false, true})
    for (const bool norm : {false, true})
      for (const Activation activation : kActivations)
        for (const Residual residual : {Residual::kNone, Residual::kOther, Residual::kOutput}) {
          all.push_back({bias, norm, activation, residual});
        }
  return all;
}

// Results are sums of `terms` products, of order 1 (the largest of thousands about 5). Each
// addition rounds the sum so far by at most 2^-24 of it; a norm before and an activation behind
// add a few such roundings each.
inline Tolerance product_tolerance(int64_t terms) {
  return {.absolute = 5 * static_cast<double>(terms + 16) * 0x1p-24};
}

}  // namespace qna::kernels::testing
