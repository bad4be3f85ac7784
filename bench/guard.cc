#include "bench/guard.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <sstream>

#include "bench/measure.h"
#include "bench/own_product.h"
#include "cli/progress.h"
#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/config/registry.h"
#include "qna/kernels/implementation.h"
#include "qna/nn/block.h"
#include "qna/nn/qna_layer.h"
#include "qna/nn/sasa.h"
#include "qna/nn/window_self_attention.h"

namespace qna::bench {
namespace {

using torch::Tensor;

struct Case {
  std::string name;
  std::function<std::function<void()>()> prepare;  // gives what is timed
};

// A module's forward pass, or its training step.
template <typename Module>
std::function<void()> layer(Module module, at::IntArrayRef sizes, bool train) {
  const Tensor x = torch::randn(sizes).requires_grad_(train);
  if (!train) {
    return [module, x]() mutable {
      torch::NoGradGuard no_grad;
      module->forward(x);
    };
  }
  const Tensor gradient = torch::randn_like(module->forward(x));
  return [module, x, gradient]() mutable {
    module->zero_grad();
    x.mutable_grad() = Tensor();
    module->forward(x).backward(gradient);
  };
}

std::function<void()> product(int64_t rows, int64_t inner, int64_t columns) {
  return own_product(torch::randn({rows, inner}), torch::randn({columns, inner}),
                     torch::empty({rows, columns}));
}

std::function<void()> network(const std::string& name, int64_t batch, int threads) {
  models::QnAViT module(config::find_model(name).config);
  module->eval();
  auto model = std::make_shared<engine::Model>(checkpoint::serving_model(module, {}));
  auto context = std::make_shared<engine::Context>(threads);
  const Tensor x = torch::randn({batch, 224, 224, 3}), logits = torch::empty({batch, 1000});
  return [=] {
    model->classify(
        {.batch = batch, .height = 224, .width = 224, .pixels = x.const_data_ptr<float>()},
        logits.data_ptr<float>(), *context);
  };
}

nn::QnA qna(int64_t in, int64_t out, int64_t heads, int64_t kernel, int64_t stride = 1) {
  return nn::QnA(nn::QnAOptions{.in_features = in,
                                .out_features = out,
                                .heads = heads,
                                .kernel_size = {kernel, kernel},
                                .stride = {stride, stride}});
}

std::vector<Case> cases(int threads) {
  const nn::QnA up(nn::QnAOptions{.in_features = 64, .heads = 8, .queries = 0, .upsample = 2});
  return {{"layer 3x3",
           [] {
             return layer(qna(64, 64, 8, 3), {1, 128, 128, 64}, false);
           }},
          {"layer 3x3 train",
           [] {
             return layer(qna(64, 64, 8, 3), {1, 128, 128, 64}, true);
           }},
          {"layer 7x7",
           [] {
             return layer(qna(64, 64, 8, 7), {1, 128, 128, 64}, false);
           }},
          {"layer 7x7 train",
           [] {
             return layer(qna(64, 64, 8, 7), {1, 128, 128, 64}, true);
           }},
          {"layer stage 3",
           [] {
             return layer(qna(256, 256, 32, 3), {8, 14, 14, 256}, false);
           }},
          {"layer stage 3 train",
           [] {
             return layer(qna(256, 256, 32, 3), {8, 14, 14, 256}, true);
           }},
          {"layer down",
           [] {
             return layer(qna(64, 128, 16, 3, 2), {1, 128, 128, 64}, false);
           }},
          {"layer up",
           [up] {
             return layer(up, {1, 64, 64, 64}, false);
           }},
          {"sasa train",
           [] {
             return layer(nn::Sasa(nn::SasaOptions{.in_features = 64, .heads = 8}), {1, 64, 64, 64},
                          true);
           }},
          {"window attention train",
           [] {
             return layer(nn::WindowSelfAttention(nn::WindowSelfAttentionOptions{
                              .features = 256, .heads = 8, .window = {7, 7}}),
                          {8, 14, 14, 256}, true);
           }},
          {"product short", [] { return product(25088, 64, 80); }},
          {"product deep", [] { return product(392, 2048, 512); }},
          {"qna_vit_tiny batch 1", [threads] { return network("qna_vit_tiny", 1, threads); }},
          {"qna_vit_tiny batch 8", [threads] { return network("qna_vit_tiny", 8, threads); }}};
}

}  // namespace

std::vector<GuardResult> run_guard_bench(const GuardOptions& options) {
  at::set_num_threads(options.threads);
  torch::manual_seed(1);
  const Tensor a = torch::randn({768, 768}), b = torch::randn({768, 768});
  Tensor c = torch::empty({768, 768});
  const Subject plain{"plain product", [&] {
                        torch::NoGradGuard no_grad;
                        torch::mm_out(c, a, b);
                      }};
  const std::vector<Case> list = cases(options.threads);
  std::vector<GuardResult> results;
  cli::Progress progress(static_cast<int64_t>(list.size()));
  for (const Case& one : list) {
    progress.show(static_cast<int64_t>(results.size()), one.name);
    const std::vector<Measurement> measured =
        measure({plain, {one.name, one.prepare()}}, options.rounds);
    results.push_back({one.name, measured[1].min_ms, measured[0].min_ms / measured[1].min_ms});
  }
  return results;
}

std::string guard_key(const std::string& name, const GuardOptions& options) {
  return fmt::format("{},{},{}", name, kernels::chosen_implementation().name, options.threads);
}

GuardRows guard_rows(const std::string& csv, const std::string& path) {
  GuardRows rows;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with("#") || line.starts_with("case,")) continue;
    const size_t comma = line.rfind(',');
    double speed = 0;
    std::istringstream number(comma == std::string::npos ? "" : line.substr(comma + 1));
    check(static_cast<bool>(number >> speed) && speed > 0,
          "{}: each line must be case,implementation,threads,speed, got '{}'", path, line);
    rows[line.substr(0, comma)] = speed;
  }
  return rows;
}

std::string guard_csv(const GuardRows& rows) {
  std::string text =
      "# qna bench guard --update: time of a plain product of 768 x 768 x 768 by LibTorch divided "
      "by that of "
      "the case\ncase,implementation,threads,speed\n";
  for (const auto& [key, speed] : rows) text += fmt::format("{},{:.5g}\n", key, speed);
  return text;
}

}  // namespace qna::bench
