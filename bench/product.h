// `qna bench product`: the matrix product inside the kernels beside LibTorch's two, on every
// product of the paper's networks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qna::bench {

// [rows, inner] times [inner, columns].
struct ProductCase {
  std::string label;
  int64_t rows, inner, columns;
};

// The products of a named classifier at 224 pixels, each shape once.
std::vector<ProductCase> model_products(const std::string& model, int64_t batch);

struct ProductOptions {
  std::vector<ProductCase> cases;
  int threads = 2;
  int rounds = 9;
};

struct ProductResult {
  ProductCase shape;
  double own_ms, mkl_ms, onednn_ms;  // minimum of interleaved rounds
  // Above 1: the own product is that much faster than the faster of the two.
  double ratio() const;
};

std::vector<ProductResult> run_product_bench(const ProductOptions& options);

std::string product_table(const std::vector<ProductResult>& results, const ProductOptions& options);
std::string product_csv(const std::vector<ProductResult>& results, const ProductOptions& options);

}  // namespace qna::bench
