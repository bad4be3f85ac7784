#include "bench/study/subjects.h"

#include <fmt/ranges.h>

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "qna/base/error.h"
#include "qna/nn/convolution.h"
#include "qna/nn/halo_attention.h"
#include "qna/nn/qna_layer.h"
#include "qna/nn/sasa.h"
#include "qna/nn/window_self_attention.h"
#include "qna/ops/composite.h"

namespace qna::bench::study {
namespace {

// Modules are made with one seed, so that two of one family have the same parameters.
template <typename Module>
Layer layer_of(Module module) {
  const torch::NoGradGuard no_grad;
  Layer layer;
  for (auto& item : module->named_parameters()) {
    // A table that is 0 at first would hide a mistake in its use.
    if (item.key().ends_with("relative_bias")) item.value().normal_(0, 0.5);
    layer.parameters.emplace_back(item.key(), item.value());
  }
  layer.forward = [module](const at::Tensor& x) mutable { return module->forward(x); };
  return layer;
}

nn::QnA qna_module(const Case& c) {
  torch::manual_seed(1);
  return nn::QnA(nn::QnAOptions{.in_features = c.dim,
                                .heads = kHeads,
                                .queries = kQueries,
                                .kernel_size = {c.kernel, c.kernel}});
}

Layer qna(const Case& c) { return layer_of(qna_module(c)); }

Layer qna_composite(const Case& c) {
  nn::QnA module = qna_module(c);
  Layer layer = layer_of(module);
  layer.forward = [module](const at::Tensor& x) {
    const ops::QnALayerParameters p = module->parameters_for_layer();
    const auto shape = ops::qna_layer_shape(x, p, std::nullopt, module->geometry(), 1);
    return ops::qna_layer_composite(x, p.score_weight, p.value_weight, p.value_bias, p.out_weight,
                                    p.out_bias, p.bias, p.tap_weights, std::nullopt, shape, 1);
  };
  return layer;
}

Layer sasa_by(const Case& c, nn::SasaMethod method) {
  torch::manual_seed(1);
  return layer_of(nn::Sasa(nn::SasaOptions{.in_features = c.dim,
                                           .heads = kHeads,
                                           .kernel_size = {c.kernel, c.kernel},
                                           .method = method}));
}
Layer sasa(const Case& c) { return sasa_by(c, nn::SasaMethod::kFused); }
Layer sasa_unfold(const Case& c) { return sasa_by(c, nn::SasaMethod::kUnfold); }

Layer halo(const Case& c) {
  torch::manual_seed(1);
  return layer_of(nn::HaloAttention(nn::HaloAttentionOptions{
      .in_features = c.dim, .heads = kHeads, .kernel_size = {c.kernel, c.kernel}}));
}

Layer window_by(const Case& c, nn::AttentionMethod method) {
  torch::manual_seed(1);
  return layer_of(nn::WindowSelfAttention(nn::WindowSelfAttentionOptions{
      .features = c.dim, .heads = kHeads, .window = {c.kernel, c.kernel}, .method = method}));
}
Layer window(const Case& c) { return window_by(c, nn::AttentionMethod::kFused); }
Layer window_sdpa(const Case& c) { return window_by(c, nn::AttentionMethod::kSdpa); }

Layer convolution_of(const Case& c, bool depthwise) {
  torch::manual_seed(1);
  return layer_of(nn::Convolution(nn::ConvolutionOptions{
      .in_features = c.dim, .kernel_size = {c.kernel, c.kernel}, .depthwise = depthwise}));
}
Layer conv(const Case& c) { return convolution_of(c, false); }
Layer depthwise(const Case& c) { return convolution_of(c, true); }

}  // namespace

std::span<const SubjectKind> all_subjects() {
  static const std::vector<SubjectKind> kSubjects = {
      {"qna", "QnA", "qna", qna, ""},
      {"qna-composite", "QnA, paper's algorithm", "qna", qna_composite, ""},
      {"py-qna-compiled", "QnA, paper's algorithm, compiled", "qna", nullptr, "qna-compiled"},
      {"jax-qna", "QnA, authors' JAX layer", "qna", nullptr, "jax"},
      {"sasa", "SASA, fused", "sasa", sasa, ""},
      {"sasa-unfold", "SASA, unfolded", "sasa", sasa_unfold, ""},
      {"py-sasa", "SASA, unfolded, Python", "sasa", nullptr, "sasa"},
      {"py-sasa-compiled", "SASA, unfolded, compiled", "sasa", nullptr, "sasa-compiled"},
      {"halo", "HaloNet, SDPA", "halo", halo, ""},
      {"py-halo", "HaloNet, timm", "timm-halo", nullptr, "halo"},
      {"py-halo-compiled", "HaloNet, timm, compiled", "timm-halo", nullptr, "halo-compiled"},
      {"window", "windows, fused", "window", window, ""},
      {"window-sdpa", "windows, SDPA", "window", window_sdpa, ""},
      {"py-window-compiled", "windows, SDPA, compiled", "window", nullptr, "window-compiled"},
      {"conv", "convolution", "conv", conv, ""},
      {"py-conv", "convolution, Python", "conv", nullptr, "conv"},
      {"depthwise", "depth-wise convolution", "depthwise", depthwise, ""},
  };
  return kSubjects;
}

const SubjectKind& find_subject(const std::string& name) {
  std::vector<std::string> names;
  for (const SubjectKind& kind : all_subjects()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  fail("there is no subject '{}'; there are {}", name, fmt::join(names, ", "));
}

const SubjectKind* first_of(const std::string& family) {
  for (const SubjectKind& kind : all_subjects()) {
    if (kind.family == family && kind.make != nullptr) return &kind;
  }
  return nullptr;
}

}  // namespace qna::bench::study
