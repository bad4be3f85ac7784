#include "bench/model.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>

#include "bench/temporary_folder.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/config/cost.h"
#include "qna/config/registry.h"

namespace qna::bench {
namespace {

// Other networks that classify images of 224 x 224 pixels: those of the paper's table of
// throughput, and some of today that are made for CPUs and phones.
const char* const kRivals[] = {"resnet50",
                               "deit_small_patch16_224",
                               "swin_tiny_patch4_window7_224",
                               "nest_tiny",
                               "convnext_tiny",
                               "focal_tiny",
                               "mobilenetv4_conv_medium",
                               "efficientvit_b1",
                               "fastvit_sa12",
                               "convnext_nano",
                               "tiny_vit_11m_224"};

bool is_ours(const ModelResult& r) { return r.subject == "qna" || r.subject == "qna-train"; }

// Random weights as in training's first step, and what our model makes of random images.
void write_problem(const config::ModelEntry& entry, std::array<int64_t, 2> image,
                   const std::string& weights, const std::string& io) {
  torch::manual_seed(1);
  models::QnAViT model(entry.config);
  model->eval();
  {
    // Tables that are 0 at first would hide a mistake in their use.
    const torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      if (item.key().ends_with("relative_bias")) item.value().normal_(0, 0.5);
      if (item.key().ends_with("attention_scale")) item.value().normal_(0.5, 0.2);
    }
    const torch::Tensor x = torch::randn({1, image[0], image[1], entry.config.in_channels});
    const torch::Tensor y = model->forward(x);
    const format::TensorView views[] = {checkpoint::view_of("x", x), checkpoint::view_of("y", y)};
    format::write_safetensors(io, views);
  }
  checkpoint::save_model(weights, model, {.name = entry.name});
}

}  // namespace

std::vector<ModelResult> run_model_bench(const ModelBenchOptions& options) {
  const TemporaryFolder folder;
  const std::vector<std::string> python = python_peer(options.peers_folder, "worker.py");
  const bool with_rivals = std::count(options.peers.begin(), options.peers.end(), "rivals") > 0;

  std::vector<ModelResult> results;
  std::vector<Runner> runners;  // that take turns with each other
  const auto add = [&](ModelResult what, const std::vector<std::string>& command,
                       const std::vector<std::string>& more) {
    what.threads = options.threads;
    runners.push_back({std::move(what), command});
    runners.back().command.insert(runners.back().command.end(), more.begin(), more.end());
  };
  const auto measure = [&](int64_t batch) {
    for (ModelResult& r : take_turns(runners, options.rounds, fmt::format("batch {}", batch))) {
      results.push_back(std::move(r));
    }
    runners.clear();
  };
  const auto add_ours = [&](const config::ModelEntry& entry, int64_t batch,
                            std::array<int64_t, 2> image, const std::string& weights,
                            const std::string& io) {
    ModelResult what{options.train ? "qna-train" : "qna", entry.name, batch, image};
    what.macs = config::total_cost(config::layer_costs(entry.config, image[0], image[1])).flops / 2;
    std::vector<std::string> command = {options.program, "worker"};
    if (options.train) command.push_back("--train");
    add(std::move(what), command, {"--weights", weights, "--check", io});
  };
  for (const int64_t batch : options.batches) {
    for (const std::string& name : options.models) {
      const config::ModelEntry& entry = config::find_model(name);
      const std::string weights = folder.file(name + ".safetensors");
      auto images = options.images;
      if (images.empty()) images.push_back(entry.config.image_size);
      for (const std::array<int64_t, 2>& image : images) {
        const std::string io = folder.file(fmt::format("{}-{}", name, size_text(image)));
        write_problem(entry, image, weights, io);
        const std::string suffix = options.train ? "-train" : "";
        add_ours(entry, batch, image, weights, io);
        const auto add_python = [&](const std::string& subject) {
          add({subject + suffix, name, batch, image}, python,
              {"--subject", subject + suffix, "--weights", weights, "--check", io});
        };
        for (const std::string& peer : options.peers) {
          if (peer == "rivals") continue;
          if (peer == "bfloat16") {
            // Not checked: rounded weights give other logits. docs/engine.md has what that costs.
            add({"qna-bfloat16", name, batch, image}, {options.program, "worker", "--bfloat16"},
                {"--weights", weights});
            continue;
          }
          add_python(peer);
          if (peer != "python") continue;
          add_python("python-compiled");
          if (options.train) continue;
          add_python("python-engine");
          add({"modules", name, batch, image}, {options.program, "worker", "--modules"},
              {"--weights", weights, "--check", io});
        }
        measure(batch);
      }
    }
    if (!with_rivals) continue;
    // Beside our first model once more: in the same turns.
    const config::ModelEntry& first = config::find_model(options.models.front());
    const std::string weights = folder.file("first.safetensors"), io = folder.file("first");
    write_problem(first, {224, 224}, weights, io);
    for (const std::string subject : {"rival", "rival-openvino"}) {
      add_ours(first, batch, {224, 224}, weights, io);
      for (const char* name : kRivals) {
        add({subject, name, batch, {224, 224}}, python, {"--subject", subject + ":" + name});
      }
      measure(batch);
    }
  }
  return results;
}

std::string model_table(const std::vector<ModelResult>& results) {
  std::string out = fmt::format("{:<14} {:<29} {:>5} {:>9} {:>8} {:>17} {:>9} {:>7} {:>9} {:>8}\n",
                                "subject", "model", "batch", "image", "images/s", "(rounds)",
                                "Mpixel/s", "GMAC/s", "peak MB", "qna is");
  const ModelResult* ours = nullptr;
  for (const ModelResult& r : results) {
    if (is_ours(r)) ours = &r;
    const std::string head =
        fmt::format("{:<14} {:<29} {:>5} {:>9} ", r.subject, r.model, r.batch, size_text(r.image));
    if (!r.error.empty()) {
      out += head + "failed: " + r.error + "\n";
      continue;
    }
    const bool comparable = ours != nullptr && ours != &r && ours->batch == r.batch &&
                            ours->image == r.image && ours->error.empty();
    const double pixels = static_cast<double>(r.image[0] * r.image[1]);
    // Training multiplies about three times as often, but not by a number that is the same for all.
    const bool counted = r.macs > 0 && !r.subject.ends_with("-train");
    out += head +
           fmt::format("{:>8.2f} {:>17} {:>9.2f} {:>7} {:>9.1f} {:>8}\n", r.images_per_second,
                       fmt::format("{:.2f} - {:.2f}", r.slowest, r.fastest),
                       r.images_per_second * pixels / 1e6,
                       counted ? fmt::format("{:.1f}", r.images_per_second * r.macs / 1e9) : "",
                       static_cast<double>(r.peak_bytes) / 1e6,
                       comparable
                           ? fmt::format("{:.2f}x", ours->images_per_second / r.images_per_second)
                           : "");
  }
  return out;
}

}  // namespace qna::bench
