#include "bench/upsample.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "bench/measure.h"
#include "cli/progress.h"
#include "qna/base/error.h"
#include "qna/base/version.h"
#include "qna/models/auto_encoder.h"
#include "qna/nn/qna_layer.h"
#include "qna/report/machine.h"

namespace qna::bench {
namespace {

using torch::Tensor;

// A subject as a function of the map, with its weights.
struct Layer {
  std::string name;
  std::function<Tensor(const Tensor&)> forward;
  std::vector<Tensor> weights;
};

Tensor channels_last(at::IntArrayRef sizes) {
  return torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

std::vector<Layer> make_layers(const UpsampleOptions& o, int64_t factor) {
  nn::QnA qna(nn::QnAOptions{.in_features = o.dim,
                             .heads = o.heads,
                             .queries = 0,
                             .kernel_size = {o.kernel, o.kernel},
                             .upsample = factor});
  const Tensor conv = channels_last({o.dim, o.dim, 3, 3});
  const config::TransposedWindow window(factor);
  const Tensor transposed = channels_last({o.dim, o.dim, window.size, window.size});
  return {{"qna", [qna](const Tensor& x) mutable { return qna(x); }, qna->parameters()},
          {"bilinear",
           [conv, factor](const Tensor& x) {
             const auto scale = static_cast<double>(factor);
             const Tensor large = at::upsample_bilinear2d(
                 x.permute({0, 3, 1, 2}), at::IntArrayRef({x.size(1) * factor, x.size(2) * factor}),
                 false, scale, scale);
             return torch::conv2d(large, conv, {}, 1, 1).permute({0, 2, 3, 1});
           },
           {conv}},
          {"transposed",
           [transposed, factor, window](const Tensor& x) {
             return at::conv_transpose2d(x.permute({0, 3, 1, 2}), transposed, {}, factor,
                                         window.padding, window.output_padding)
                 .permute({0, 2, 3, 1});
           },
           {transposed}}};
}

void run_case(const UpsampleOptions& o, int64_t factor, const std::string& pass,
              std::vector<UpsampleResult>& results) {
  torch::manual_seed(1);
  const bool train = pass == "train";
  const at::AutoGradMode grad_mode(train);
  const Tensor x = torch::randn({o.batch, o.size, o.size, o.dim}).requires_grad_(train);
  const Tensor gradient = torch::randn({o.batch, o.size * factor, o.size * factor, o.dim});
  const std::vector<Layer> layers = make_layers(o, factor);
  std::vector<Subject> subjects;
  for (const Layer& layer : layers) {
    for (Tensor weight : layer.weights) weight.requires_grad_(train);
    check(layer.forward(x).sizes() == gradient.sizes(), "{}: its map has another size", layer.name);
    subjects.push_back({layer.name, [&layer, &x, &gradient, train] {
                          if (!train) return void(layer.forward(x));
                          x.mutable_grad() = Tensor();
                          for (Tensor weight : layer.weights) weight.mutable_grad() = Tensor();
                          layer.forward(x).backward(gradient);
                        }});
  }
  const std::vector<Measurement> measured = measure(subjects, o.rounds);
  for (size_t i = 0; i < subjects.size(); ++i) {
    results.push_back({subjects[i].name, pass, factor, measured[i].min_ms, measured[i].median_ms,
                       measured[i].spread, measured[i].peak_bytes});
  }
}

}  // namespace

std::vector<UpsampleResult> run_upsample_bench(const UpsampleOptions& options) {
  count_allocations();
  at::set_num_threads(options.threads);
  std::vector<UpsampleResult> results;
  cli::Progress progress(static_cast<int64_t>(options.factors.size() * options.passes.size()));
  int64_t done = 0;
  for (const int64_t factor : options.factors) {
    for (const std::string& pass : options.passes) {
      progress.show(done++, fmt::format("{}, {} times", pass, factor));
      run_case(options, factor, pass, results);
    }
  }
  return results;
}

std::string upsample_table(const std::vector<UpsampleResult>& results,
                           const UpsampleOptions& options) {
  std::string text = fmt::format(
      "{}; {} threads; float32; commit {}\n"
      "minimum of interleaved rounds; a ratio above 1 says that QnA is that much faster\n\n"
      "{:>8}{:>32}{:>12}{:>10}{:>9}{:>10}\n",
      report::machine_description(), options.threads, commit(), "pass", "map", "subject", "ms",
      "ratio", "peak MB");
  double qna = 0;
  for (const UpsampleResult& r : results) {
    if (r.subject == "qna") qna = r.min_ms;
    const std::string map = fmt::format("{0}x{0}x{2} -> {1}x{1}x{2}", options.size,
                                        options.size * r.factor, options.dim);
    text += fmt::format("{:>8}{:>32}{:>12}{:>10.3f}{:>9}{:>10.2f}\n", r.pass, map, r.subject,
                        r.min_ms, r.subject == "qna" ? "" : fmt::format("{:.2f}x", r.min_ms / qna),
                        static_cast<double>(r.peak_bytes) / 1e6);
  }
  return text;
}

std::string upsample_csv(const std::vector<UpsampleResult>& results,
                         const UpsampleOptions& options) {
  std::string text =
      "subject,pass,factor,kernel,batch,size,dim,heads,threads,min_ms,median_ms,spread,peak_bytes,"
      "machine,commit\n";
  for (const UpsampleResult& r : results) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{:.4f},{:.4f},{:.3f},{},\"{}\",{}\n", r.subject,
                        r.pass, r.factor, options.kernel, options.batch, options.size, options.dim,
                        options.heads, options.threads, r.min_ms, r.median_ms, r.spread,
                        r.peak_bytes, report::machine_description(), commit());
  }
  return text;
}

}  // namespace qna::bench
