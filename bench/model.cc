#include "bench/model.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/measure.h"
#include "bench/peer.h"
#include "bench/temporary_folder.h"
#include "qna/base/error.h"
#include "qna/base/progress.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/models/registry.h"
#include "qna/report/machine.h"

namespace qna::bench {
namespace {

namespace fs = std::filesystem;

const char* const kTimmModels[] = {"resnet50", "deit_small_patch16_224",
                                   "swin_tiny_patch4_window7_224", "nest_tiny", "convnext_tiny"};

// Random weights as in training's first step, and what our model makes of random images.
void write_problem(const models::ModelEntry& entry, std::array<int64_t, 2> image,
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

struct Runner {
  ModelResult result;
  std::vector<std::string> command;
  std::unique_ptr<Peer> peer = nullptr;
  int batches = 1;  // per turn
  std::vector<double> speeds = {};
};

// About this long does a subject run each time it is its turn.
constexpr double kTurnSeconds = 0.7;

void take_turns(std::vector<Runner>& subjects, int rounds, const std::string& what) {
  Progress progress(static_cast<int64_t>(subjects.size()) * (rounds + 1));
  int64_t done = 0;
  for (Runner& s : subjects) {
    progress.show(done++,
                  fmt::format("{}: {} {} gets ready", what, s.result.subject, s.result.model));
    try {
      s.peer = std::make_unique<Peer>(s.command);
      s.batches = std::clamp(static_cast<int>(kTurnSeconds / s.peer->seconds(1)), 1, 200);
      s.result.version = s.peer->version();
      s.result.peak_bytes = s.peer->peak_bytes();
    } catch (const Error& error) {
      s.result.error = error.what();
      s.peer = nullptr;
    }
  }
  for (int round = 0; round < rounds; ++round)
    for (Runner& s : subjects) {
      progress.show(done++, fmt::format("{}: {} {}", what, s.result.subject, s.result.model));
      if (s.peer == nullptr) continue;
      // Threads of the one before may still spin.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      try {
        s.speeds.push_back(static_cast<double>(s.batches * s.result.batch) /
                           s.peer->seconds(s.batches));
      } catch (const Error& error) {
        s.result.error = error.what();
        s.peer = nullptr;
        s.speeds.clear();
      }
    }
  for (Runner& s : subjects) {
    s.peer = nullptr;
    if (s.speeds.empty()) continue;
    std::sort(s.speeds.begin(), s.speeds.end());
    s.result.slowest = s.speeds.front();
    s.result.fastest = s.speeds.back();
    s.result.images_per_second = s.speeds[s.speeds.size() / 2];
  }
}

// "224" or "1536x2048"
std::string size_text(std::array<int64_t, 2> size) {
  return size[0] == size[1] ? std::to_string(size[0]) : fmt::format("{}x{}", size[0], size[1]);
}

Runner make_runner(const ModelBenchOptions& options, int64_t batch, std::array<int64_t, 2> image,
                   const std::string& subject, const std::string& model,
                   std::vector<std::string> command) {
  const std::vector<std::string> common = {"--batch",   std::to_string(batch),
                                           "--threads", std::to_string(options.threads),
                                           "--image",   size_text(image)};
  command.insert(command.end(), common.begin(), common.end());
  Runner runner;
  runner.result = {.subject = subject,
                   .model = model,
                   .batch = batch,
                   .image = image,
                   .threads = options.threads};
  runner.command = std::move(command);
  return runner;
}

}  // namespace

std::string default_peers_folder() { return QNA_PEERS_FOLDER; }

std::vector<ModelResult> run_model_bench(const ModelBenchOptions& options) {
  const TemporaryFolder folder;
  const fs::path peers(options.peers_folder);
  const std::string python = (peers / "../../build/peers/bin/python").lexically_normal().string();
  const std::string worker = (peers / "worker.py").string();
  const bool with_timm = std::count(options.peers.begin(), options.peers.end(), "timm") > 0;

  std::vector<ModelResult> results;
  const auto measure = [&](int64_t batch, std::vector<Runner> runners) {
    take_turns(runners, options.rounds, fmt::format("batch {}", batch));
    for (Runner& runner : runners) results.push_back(std::move(runner.result));
  };
  for (const int64_t batch : options.batches) {
    for (const std::string& name : options.models) {
      const models::ModelEntry& entry = models::find_model(name);
      const std::string weights = folder.file(name + ".safetensors");
      auto images = options.images;
      if (images.empty()) images.push_back(entry.config.image_size);
      for (const std::array<int64_t, 2>& image : images) {
        const std::string io = folder.file(fmt::format("{}-{}", name, size_text(image)));
        write_problem(entry, image, weights, io);
        const std::vector<std::string> files = {"--weights", weights, "--check", io};
        std::vector<Runner> runners;
        const auto add = [&](const std::string& subject, std::vector<std::string> command) {
          command.insert(command.end(), files.begin(), files.end());
          runners.push_back(make_runner(options, batch, image, subject, name, std::move(command)));
        };
        const std::string suffix = options.train ? "-train" : "";
        std::vector<std::string> ours = {options.program, "bench", "worker"};
        if (options.train) ours.push_back("--train");
        add("qna" + suffix, std::move(ours));
        for (const std::string& peer : options.peers) {
          if (peer != "timm") add(peer + suffix, {python, worker, "--subject", peer + suffix});
        }
        measure(batch, std::move(runners));
      }
    }
    if (!with_timm) continue;
    std::vector<Runner> runners;
    for (const char* name : kTimmModels) {
      runners.push_back(make_runner(options, batch, {224, 224}, "timm", name,
                                    {python, worker, "--subject", std::string("timm:") + name}));
    }
    measure(batch, std::move(runners));
  }
  return results;
}

std::string model_table(const std::vector<ModelResult>& results) {
  std::string out =
      fmt::format("{:<12} {:<29} {:>5} {:>9} {:>8} {:>17} {:>9} {:>9} {:>8}\n", "subject", "model",
                  "batch", "image", "images/s", "(rounds)", "Mpixel/s", "peak MB", "qna is");
  const ModelResult* ours = nullptr;
  for (const ModelResult& r : results) {
    if (r.subject == "qna" || r.subject == "qna-train") ours = &r;
    const std::string head =
        fmt::format("{:<12} {:<29} {:>5} {:>9} ", r.subject, r.model, r.batch, size_text(r.image));
    if (!r.error.empty()) {
      out += head + "failed: " + r.error + "\n";
      continue;
    }
    const bool comparable = ours != nullptr && ours != &r && ours->model == r.model &&
                            ours->batch == r.batch && ours->image == r.image && ours->error.empty();
    const double pixels = static_cast<double>(r.image[0] * r.image[1]);
    out += head +
           fmt::format("{:>8.2f} {:>17} {:>9.2f} {:>9.1f} {:>8}\n", r.images_per_second,
                       fmt::format("{:.2f} - {:.2f}", r.slowest, r.fastest),
                       r.images_per_second * pixels / 1e6, static_cast<double>(r.peak_bytes) / 1e6,
                       comparable
                           ? fmt::format("{:.2f}x", ours->images_per_second / r.images_per_second)
                           : "");
  }
  return out;
}

std::string model_csv(const std::vector<ModelResult>& results) {
  std::string out =
      "subject,model,batch,image,threads,dtype,images_per_second,peak_bytes,machine,commit,"
      "slowest,fastest,version\n";
  for (const ModelResult& r : results) {
    if (!r.error.empty()) continue;
    out += fmt::format("{},{},{},{},{},float32,{:.3f},{},\"{}\",{},{:.3f},{:.3f},\"{}\"\n",
                       r.subject, r.model, r.batch, size_text(r.image), r.threads,
                       r.images_per_second, r.peak_bytes, report::machine_description(), commit(),
                       r.slowest, r.fastest, r.version);
  }
  return out;
}

}  // namespace qna::bench
