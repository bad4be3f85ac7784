#include "bench/layer.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <map>

#include "bench/measure.h"
#include "cli/progress.h"
#include "qna/base/error.h"
#include "qna/base/version.h"
#include "qna/kernels/implementation.h"
#include "qna/nn/qna_layer.h"
#include "qna/ops/composite.h"
#include "qna/ops/torch_runtime.h"
#include "qna/report/machine.h"

namespace qna::bench {
namespace {

at::ScalarType dtype_of(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  fail("--dtype must be float32, bfloat16 or float16, got '{}'", name);
}

// Everything one shape needs: the layer, its input, and the peers.
struct Problem {
  Problem(const LayerCase& c, at::ScalarType type)
      : shape(c),
        layer(nn::QnAOptions{.in_features = c.in_features,
                             .out_features = c.dim,
                             .heads = c.heads,
                             .queries = c.queries,
                             .kernel_size = {c.kernel, c.kernel},
                             .stride = {c.stride, c.stride}}),
        x(torch::randn({c.batch, c.height, c.width, c.in_features}).to(type)),
        conv_weight(torch::randn({c.dim, c.in_features, c.kernel, c.kernel})
                        .to(type, false, false, at::MemoryFormat::ChannelsLast)) {
    torch::NoGradGuard no_grad;
    layer->relative_bias.normal_(0, 0.5);
    layer->to(type);
    y = layer(x);
    grad = torch::randn_like(y);
    z = torch::randn({y.size(0) * y.size(1) * y.size(2), c.dim});
    conv_grad = torch::randn_like(conv(x));
    rows = x.to(at::kFloat).flatten(0, 2);
    const int64_t columns = c.dim + c.queries * c.heads;
    in_weight = torch::randn({c.in_features, columns});
    out_weight = torch::randn({c.dim, c.dim});
    projected = torch::empty({rows.size(0), columns});
    out = torch::empty({z.size(0), c.dim});
    grad_projected = torch::randn({rows.size(0), columns});
    grad_out = torch::randn({z.size(0), c.dim});
  }

  at::Tensor composite(const at::Tensor& input) {
    const ops::QnALayerParameters p = layer->parameters_for_layer();
    const auto s = ops::qna_layer_shape(input, p, std::nullopt, layer->geometry(), 1);
    return ops::qna_layer_composite(input, p.score_weight, p.value_weight, p.value_bias,
                                    p.out_weight, p.out_bias, p.bias, p.tap_weights, std::nullopt,
                                    s, 1);
  }
  // A convolution pads alike on both sides: no peer for even windows.
  bool has_conv() const { return shape.kernel % 2 == 1; }
  at::Tensor conv(const at::Tensor& input) {
    const auto& padding = layer->geometry().padding;
    return torch::conv2d(input.permute({0, 3, 1, 2}), conv_weight, {}, shape.stride,
                         {padding[0], padding[2]});
  }
  void gemm_torch() {
    torch::mm_out(projected, rows, in_weight);
    torch::mm_out(out, z, out_weight);
  }
  // All six of a training step: backward each product has two.
  void gemm_train() {
    torch::NoGradGuard no_grad;
    gemm_torch();
    torch::mm(grad_out, out_weight.t());
    torch::mm(z.t(), grad_out);
    torch::mm(grad_projected, in_weight.t());
    torch::mm(rows.t(), grad_projected);
  }
  void gemm_own() {
    const auto product = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      ops::TorchRuntime runtime;
      kernels::product({a.size(0), a.size(1), b.size(1), a.const_data_ptr<float>(),
                        b.const_data_ptr<float>(), c.data_ptr<float>()},
                       runtime);
    };
    product(rows, in_weight, projected);
    product(z, out_weight, out);
  }

  // The layer's answer against the composite form's.
  void check_answer() {
    torch::NoGradGuard no_grad;
    const at::Tensor expected = composite(x).to(at::kFloat);
    const double error = (layer(x).to(at::kFloat) - expected).abs().max().item<double>();
    const double scale = expected.abs().max().item<double>();
    const double allowed = x.scalar_type() == at::kFloat ? 1e-4 : 3e-2;
    check(error <= allowed * scale,
          "the layer's answer differs from the composite form's by {:.3g} of {:.3g}", error, scale);
  }

  LayerCase shape;
  nn::QnA layer;
  at::Tensor x, y, grad, z, conv_weight, conv_grad;
  at::Tensor rows, in_weight, out_weight, projected, out, grad_projected, grad_out;
};

std::vector<Subject> forward_subjects(Problem& p, const std::vector<std::string>& peers) {
  std::vector<Subject> subjects = {{"qna", [&p] { p.y = p.layer(p.x); }}};
  for (const std::string& peer : peers) {
    if (peer == "composite") subjects.push_back({peer, [&p] { p.composite(p.x); }});
    if (peer == "conv" && p.has_conv()) subjects.push_back({peer, [&p] { p.conv(p.x); }});
    if (peer == "gemm" && p.x.scalar_type() == at::kFloat) {
      subjects.push_back({"gemm torch", [&p] { p.gemm_torch(); }});
      subjects.push_back({"gemm own", [&p] { p.gemm_own(); }});
    }
  }
  return subjects;
}

std::vector<Subject> train_subjects(Problem& p, const std::vector<std::string>& peers) {
  const auto clear = [&p] {
    p.layer->zero_grad();
    p.x.mutable_grad() = at::Tensor();
    p.conv_weight.mutable_grad() = at::Tensor();
  };
  std::vector<Subject> subjects = {{"qna", [&p, clear] {
                                      clear();
                                      p.layer(p.x).backward(p.grad);
                                    }}};
  for (const std::string& peer : peers) {
    if (peer == "composite") {
      subjects.push_back({peer, [&p, clear] {
                            clear();
                            p.composite(p.x).backward(p.grad);
                          }});
    }
    if (peer == "conv" && p.has_conv()) {
      subjects.push_back({peer, [&p, clear] {
                            clear();
                            p.conv(p.x).backward(p.conv_grad);
                          }});
    }
    if (peer == "gemm" && p.x.scalar_type() == at::kFloat) {
      subjects.push_back({"gemm torch", [&p] { p.gemm_train(); }});
    }
  }
  return subjects;
}

// Bytes that live between forward and backward, beyond the output.
int64_t kept_bytes(Problem& p) {
  p.layer->zero_grad();
  p.x.mutable_grad() = at::Tensor();
  const int64_t before = allocated_bytes();
  const at::Tensor y = p.layer(p.x);
  // The input, which autograd keeps alive too, counts as kept.
  return allocated_bytes() - before - static_cast<int64_t>(y.nbytes()) +
         static_cast<int64_t>(p.x.nbytes());
}

void run_case(const LayerBenchOptions& options, const LayerCase& shape, const std::string& pass,
              int64_t threads, std::vector<LayerResult>& results) {
  at::set_num_threads(static_cast<int>(threads));
  torch::manual_seed(1);
  Problem problem(shape, dtype_of(options.dtype));
  problem.check_answer();
  const bool train = pass == "train";
  const at::AutoGradMode grad_mode(train);
  problem.x.requires_grad_(train);
  problem.conv_weight.requires_grad_(train);
  const std::vector<Subject> subjects =
      train ? train_subjects(problem, options.peers) : forward_subjects(problem, options.peers);
  const std::vector<Measurement> measured = measure(subjects, options.rounds);
  const std::string own = std::string(kernels::chosen_implementation().name);
  for (size_t i = 0; i < subjects.size(); ++i) {
    const bool is_qna = subjects[i].name == "qna";
    const bool is_own = is_qna || subjects[i].name == "gemm own";
    const std::string name = subjects[i].name.starts_with("gemm") ? "gemm" : subjects[i].name;
    LayerResult result{shape,
                       name,
                       pass,
                       threads,
                       is_own ? own : "torch",
                       measured[i].min_ms,
                       measured[i].median_ms,
                       measured[i].spread,
                       measured[i].peak_bytes,
                       0};
    if (is_qna) {
      result.extra_bytes = train
                               ? kept_bytes(problem)
                               : measured[i].peak_bytes - static_cast<int64_t>(problem.y.nbytes());
    }
    results.push_back(result);
  }
}

}  // namespace

std::vector<LayerCase> model_cases(int64_t batch) {
  struct Model {
    const char* name;
    int64_t dim, heads, kernel;
  };
  // Stage i has map side 56 >> i and 2^i times the features and heads; a stride-2 layer that
  // doubles both ends it.
  const Model models[] = {{"tiny", 64, 8, 3}, {"tiny_7x7", 64, 8, 7}, {"base", 96, 6, 3}};
  std::vector<LayerCase> cases;
  for (const Model& model : models)
    for (int stage = 0; stage < 3; ++stage) {
      const int64_t side = 56 >> stage;
      LayerCase c{
          .label = fmt::format("{}{} stage {}", model.name,
                               model.name == std::string("tiny") ? ", small" : "", stage + 1),
          .kernel = model.kernel,
          .batch = batch,
          .height = side,
          .width = side,
          .in_features = model.dim << stage,
          .dim = model.dim << stage,
          .heads = model.heads << stage};
      cases.push_back(c);
      c.label += " down";
      c.dim *= 2;
      c.heads *= 2;
      c.stride = 2;
      cases.push_back(c);
    }
  return cases;
}

std::vector<LayerResult> run_layer_bench(const LayerBenchOptions& options) {
  count_allocations();
  std::vector<LayerResult> results;
  const size_t total = options.cases.size() * options.passes.size() * options.threads.size();
  cli::Progress progress(static_cast<int64_t>(total));
  int64_t done = 0;
  for (const LayerCase& shape : options.cases)
    for (const std::string& pass : options.passes)
      for (const int64_t threads : options.threads) {
        progress.show(done++,
                      fmt::format("{}, window {}, map {}x{}x{}, {} threads", pass, shape.kernel,
                                  shape.height, shape.width, shape.dim, threads));
        run_case(options, shape, pass, threads, results);
      }
  return results;
}

std::string layer_table(const std::vector<LayerResult>& results, const std::string& dtype) {
  // One line per shape, pass and thread count; of several gemm rows the fastest.
  struct Line {
    const LayerResult* qna = nullptr;
    std::map<std::string, double> peers;
  };
  std::vector<Line> lines;
  bool labels = false;
  for (const LayerResult& result : results) {
    labels |= !result.shape.label.empty();
    if (result.subject == "qna") {
      lines.push_back({&result, {}});
      continue;
    }
    double& best = lines.back()
                       .peers.try_emplace(result.subject, std::numeric_limits<double>::max())
                       .first->second;
    best = std::min(best, result.min_ms);
  }
  if (lines.empty()) return "";
  const int label_width = labels ? 25 : 0;
  std::string text = fmt::format(
      "{}; {}; kernels: {}; commit {}\n"
      "minimum of interleaved rounds; a ratio above 1 says the QnA layer is that much faster\n\n",
      report::machine_description(), dtype, lines.front().qna->implementation, commit());
  text += fmt::format("{:<{}}{:>8}{:>3}{:>16}{:>4}{:>4}{:>10}{:>12}{:>12}{:>12}{:>16}\n",
                      labels ? "layer" : "", label_width, "pass", "k", "map", "str", "thr",
                      "qna ms", "composite", "conv", "gemms", "extra memory");
  for (const Line& line : lines) {
    const LayerResult& r = *line.qna;
    const auto ratio = [&](const char* peer) {
      const auto found = line.peers.find(peer);
      return found == line.peers.end() ? std::string("-")
                                       : fmt::format("{:.2f}x", found->second / r.min_ms);
    };
    const double map_bytes =
        static_cast<double>(r.shape.batch * r.shape.height * r.shape.width * r.shape.dim) *
        sizeof(float);
    const std::string memory = r.pass == "train"
                                   ? fmt::format("keeps {:.2f} maps", r.extra_bytes / map_bytes)
                                   : fmt::format("{:.2f} MB", r.extra_bytes / 1e6);
    const std::string map =
        fmt::format("{}x{}x{}x{}", r.shape.batch, r.shape.height, r.shape.width, r.shape.dim);
    text +=
        fmt::format("{:<{}}{:>8}{:>3}{:>16}{:>4}{:>4}{:>10.3f}{:>12}{:>12}{:>12}{:>16}\n",
                    r.shape.label, label_width, r.pass, r.shape.kernel, map, r.shape.stride,
                    r.threads, r.min_ms, ratio("composite"), ratio("conv"), ratio("gemm"), memory);
  }
  return text;
}

std::string layer_csv(const std::vector<LayerResult>& results, const std::string& dtype) {
  std::string text =
      "subject,pass,kernel,batch,height,width,dim,heads,queries,stride,threads,dtype,"
      "implementation,min_ms,median_ms,spread,peak_bytes,extra_bytes,in_features,label,machine,"
      "commit\n";
  for (const LayerResult& r : results) {
    const LayerCase& s = r.shape;
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{:.4f},{:.4f},{:.3f},{},{},{},"
        "\"{}\",\"{}\",{}\n",
        r.subject, r.pass, s.kernel, s.batch, s.height, s.width, s.dim, s.heads, s.queries,
        s.stride, r.threads, dtype, r.implementation, r.min_ms, r.median_ms, r.spread, r.peak_bytes,
        r.extra_bytes, s.in_features, s.label, report::machine_description(), commit());
  }
  return text;
}

}  // namespace qna::bench
