#include "bench/product.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "bench/measure.h"
#include "bench/own_product.h"
#include "cli/progress.h"
#include "qna/base/error.h"
#include "qna/base/version.h"
#include "qna/config/registry.h"
#include "qna/kernels/dense.h"
#include "qna/kernels/implementation.h"
#include "qna/ops/torch_runtime.h"
#include "qna/report/machine.h"

namespace qna::bench {
namespace {

ProductResult run_case(const ProductCase& shape, int rounds) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const at::Tensor a = torch::randn({shape.rows, shape.inner});
  const at::Tensor weight = torch::randn({shape.columns, shape.inner});  // as torch::linear has it
  at::Tensor by_mkl = torch::empty({shape.rows, shape.columns});
  at::Tensor by_us = torch::empty_like(by_mkl);
  // All three may prepare their weights before: a network multiplies by the same ones every time.
  const at::Tensor transposed = weight.t().contiguous();
  const at::Tensor onednn_a = a.to_mkldnn(), onednn_weight = weight.to_mkldnn();
  const std::vector<Subject> subjects = {
      {"own", own_product(a, weight, by_us)},
      {"mkl", [&] { torch::mm_out(by_mkl, a, transposed); }},
      {"onednn", [&] { at::mkldnn_linear(onednn_a, onednn_weight); }}};
  const std::vector<Measurement> measured = measure(subjects, rounds);
  const double error = (by_us - by_mkl).abs().max().item<double>();
  check(error <= 1e-4 * by_mkl.abs().max().item<double>(),
        "the products of {} x {} x {} differ by {:.3g}", shape.rows, shape.inner, shape.columns,
        error);
  return {shape, measured[0].min_ms, measured[1].min_ms, measured[2].min_ms};
}

}  // namespace

std::function<void()> own_product(const at::Tensor& a, const at::Tensor& weight,
                                  const at::Tensor& c) {
  ops::TorchRuntime runtime;
  const auto packed = std::make_shared<kernels::PackedWeights>(
      kernels::pack_matrix({.inner = weight.size(1),
                            .columns = weight.size(0),
                            .weight = weight.const_data_ptr<float>(),
                            .inner_stride = 1,
                            .column_stride = weight.size(1),
                            .bias = nullptr},
                           runtime));
  return [=] {
    ops::TorchRuntime own;
    kernels::dense({.rows = a.size(0),
                    .x = a.const_data_ptr<float>(),
                    .weights = packed.get(),
                    .y = c.data_ptr<float>()},
                   own);
  };
}

double ProductResult::ratio() const { return std::min(mkl_ms, onednn_ms) / own_ms; }

std::vector<ProductCase> model_products(const std::string& model, int64_t batch) {
  const config::QnAViTConfig c = config::find_model(model).config;
  std::vector<ProductCase> list;
  std::set<std::array<int64_t, 3>> seen;
  const auto add = [&](const std::string& label, int64_t rows, int64_t inner, int64_t columns) {
    if (seen.insert({rows, inner, columns}).second) {
      list.push_back({fmt::format("{} {}", model, label), rows, inner, columns});
    }
  };
  const auto rows_at = [&](int64_t stride) { return batch * (224 / stride) * (224 / stride); };
  check(c.stem == config::StemKind::kPatch && c.downsample == config::Downsample::kQnA,
        "{}: its products are not known here: they are of networks with patches and QnA between "
        "the stages",
        model);
  add("patches", rows_at(c.stride(0)), c.in_channels * c.patch_size * c.patch_size, c.base_dim);
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const config::StageConfig& s = c.stages[i];
    const int64_t rows = rows_at(c.stride(i)), dim = c.features(i);
    const auto named = [&](const char* what) { return fmt::format("stage {} {}", i + 1, what); };
    if (s.attention_blocks > 0) add(named("attention in"), rows, dim, 3 * dim);
    if (s.qna_blocks > 0) add(named("qna in"), rows, dim, dim + s.queries * s.qna_heads);
    add(named("out"), rows, dim, dim);
    const auto hidden = static_cast<int64_t>(static_cast<double>(dim) * c.mlp_ratio);
    add(named("mlp in"), rows, dim, hidden);
    add(named("mlp out"), rows, hidden, dim);
    if (i + 1 == c.stages.size()) break;
    add(named("down in"), rows, dim, 2 * (dim + s.queries * s.qna_heads));
    add(named("down skip"), rows / 4, dim, 2 * dim);
  }
  return list;
}

std::vector<ProductResult> run_product_bench(const ProductOptions& options) {
  at::set_num_threads(options.threads);
  std::vector<ProductResult> results;
  cli::Progress progress(static_cast<int64_t>(options.cases.size()));
  for (const ProductCase& shape : options.cases) {
    progress.show(static_cast<int64_t>(results.size()), shape.label);
    results.push_back(run_case(shape, options.rounds));
  }
  return results;
}

std::string product_table(const std::vector<ProductResult>& results,
                          const ProductOptions& options) {
  std::string text = fmt::format(
      "{}; {} threads; float32; kernels: {}; commit {}\n"
      "minimum of interleaved rounds; a ratio above 1 says that the own product is that much "
      "faster "
      "than the best of the others\n\n"
      "{:<38}{:>8}{:>6}{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}\n",
      report::machine_description(), options.threads, kernels::chosen_implementation().name,
      commit(), "product", "rows", "inner", "columns", "own ms", "MKL ms", "oneDNN ms", "GFLOP/s",
      "ratio");
  double logs = 0, worst = 1e9;
  for (const ProductResult& r : results) {
    const double operations = 2.0 * static_cast<double>(r.shape.rows * r.shape.inner) *
                              static_cast<double>(r.shape.columns);
    text += fmt::format("{:<38}{:>8}{:>6}{:>8}{:>10.3f}{:>10.3f}{:>10.3f}{:>10.1f}{:>7.2f}x\n",
                        r.shape.label, r.shape.rows, r.shape.inner, r.shape.columns, r.own_ms,
                        r.mkl_ms, r.onednn_ms, operations / r.own_ms / 1e6, r.ratio());
    logs += std::log(r.ratio());
    worst = std::min(worst, r.ratio());
  }
  if (results.empty()) return text;
  return text + fmt::format("\ngeometric mean {:.2f}x, worst {:.2f}x\n",
                            std::exp(logs / static_cast<double>(results.size())), worst);
}

std::string product_csv(const std::vector<ProductResult>& results, const ProductOptions& options) {
  std::string text =
      "product,rows,inner,columns,threads,implementation,own_ms,mkl_ms,onednn_ms,ratio,machine,"
      "commit\n";
  for (const ProductResult& r : results) {
    text += fmt::format("{},{},{},{},{},{},{:.4f},{:.4f},{:.4f},{:.3f},\"{}\",{}\n", r.shape.label,
                        r.shape.rows, r.shape.inner, r.shape.columns, options.threads,
                        kernels::chosen_implementation().name, r.own_ms, r.mkl_ms, r.onednn_ms,
                        r.ratio(), report::machine_description(), commit());
  }
  return text;
}

}  // namespace qna::bench
