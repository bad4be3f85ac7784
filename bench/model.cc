#include "bench/model.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/measure.h"
#include "bench/peer.h"
#include "qna/base/error.h"
#include "qna/base/progress.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/models/registry.h"

namespace qna::bench {
namespace {

namespace fs = std::filesystem;

const char* const kTimmModels[] = {"resnet50", "deit_small_patch16_224",
                                   "swin_tiny_patch4_window7_224", "nest_tiny", "convnext_tiny"};

// A folder that vanishes with everything in it.
struct TemporaryFolder {
  TemporaryFolder() : path(fs::temp_directory_path() / fmt::format("qna-bench-{}", getpid())) {
    fs::create_directories(path);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string file(const std::string& name) const { return (path / name).string(); }
  fs::path path;
};

// Random weights as in training's first step, and what our model makes of random images.
void write_problem(const models::ModelEntry& entry, int64_t image, const std::string& weights,
                   const std::string& io) {
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
    const torch::Tensor x = torch::randn({1, image, image, entry.config.in_channels});
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
      s.speeds.push_back(static_cast<double>(s.batches * s.result.batch) /
                         s.peer->seconds(s.batches));
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

}  // namespace

std::string default_peers_folder() { return QNA_PEERS_FOLDER; }

std::vector<ModelResult> run_model_bench(const ModelBenchOptions& options) {
  const TemporaryFolder folder;
  std::vector<ModelResult> results;
  const std::string python =
      (fs::path(options.peers_folder) / "../../build/peers/bin/python").lexically_normal().string();
  const std::string worker = (fs::path(options.peers_folder) / "worker.py").string();
  for (const int64_t batch : options.batches) {
    std::vector<std::pair<std::string, std::vector<Runner>>> groups;
    const auto runner = [&](const std::string& name, const std::string& model, int64_t image,
                            std::vector<std::string> command) {
      const std::vector<std::string> common = {"--batch",   std::to_string(batch),
                                               "--threads", std::to_string(options.threads),
                                               "--image",   std::to_string(image)};
      command.insert(command.end(), common.begin(), common.end());
      Runner s;
      s.result = {.subject = name,
                  .model = model,
                  .batch = batch,
                  .image = image,
                  .threads = options.threads};
      s.command = std::move(command);
      return s;
    };
    for (const std::string& name : options.models) {
      const models::ModelEntry& entry = models::find_model(name);
      const int64_t image = options.image == 0 ? entry.config.image_size[0] : options.image;
      const std::string weights = folder.file(name + ".safetensors");
      const std::string io = folder.file(name + "-io.safetensors");
      if (!fs::exists(weights)) write_problem(entry, image, weights, io);
      std::vector<Runner> subjects;
      subjects.push_back(
          runner("qna", name, image,
                 {options.program, "bench", "worker", "--weights", weights, "--check", io}));
      for (const std::string& peer : options.peers) {
        if (peer == "timm") continue;
        subjects.push_back(
            runner(peer, name, image,
                   {python, worker, "--subject", peer, "--weights", weights, "--check", io}));
      }
      groups.emplace_back(fmt::format("batch {}", batch), std::move(subjects));
    }
    if (std::count(options.peers.begin(), options.peers.end(), "timm") > 0) {
      std::vector<Runner> subjects;
      for (const char* name : kTimmModels) {
        subjects.push_back(
            runner("timm", name, 224, {python, worker, "--subject", std::string("timm:") + name}));
      }
      groups.emplace_back(fmt::format("batch {}", batch), std::move(subjects));
    }
    for (auto& [what, subjects] : groups) {
      take_turns(subjects, options.rounds, what);
      for (Runner& s : subjects) results.push_back(std::move(s.result));
    }
  }
  return results;
}

std::string model_table(const std::vector<ModelResult>& results) {
  std::string out =
      fmt::format("{:<12} {:<29} {:>5} {:>5} {:>8} {:>17} {:>9} {:>9}\n", "subject", "model",
                  "batch", "image", "images/s", "(rounds)", "peak MB", "qna is");
  const ModelResult* ours = nullptr;
  for (const ModelResult& r : results) {
    if (r.subject == "qna") ours = &r;
    if (!r.error.empty()) {
      out += fmt::format("{:<12} {:<29} {:>5} {:>5} failed: {}\n", r.subject, r.model, r.batch,
                         r.image, r.error);
      continue;
    }
    const bool comparable = ours != nullptr && ours != &r && ours->model == r.model &&
                            ours->batch == r.batch && ours->error.empty();
    out += fmt::format(
        "{:<12} {:<29} {:>5} {:>5} {:>8.2f} {:>17} {:>9.1f} {:>9}\n", r.subject, r.model, r.batch,
        r.image, r.images_per_second, fmt::format("{:.2f} - {:.2f}", r.slowest, r.fastest),
        static_cast<double>(r.peak_bytes) / 1e6,
        comparable ? fmt::format("{:.2f}x", ours->images_per_second / r.images_per_second) : "");
  }
  return out;
}

std::string model_csv(const std::vector<ModelResult>& results) {
  std::string out =
      "subject,model,batch,image,threads,dtype,images_per_second,peak_bytes,machine,commit,"
      "slowest,fastest,version\n";
  for (const ModelResult& r : results) {
    if (!r.error.empty()) continue;
    out +=
        fmt::format("{},{},{},{},{},float32,{:.3f},{},\"{}\",{},{:.3f},{:.3f},\"{}\"\n", r.subject,
                    r.model, r.batch, r.image, r.threads, r.images_per_second, r.peak_bytes,
                    machine_description(), commit(), r.slowest, r.fastest, r.version);
  }
  return out;
}

}  // namespace qna::bench
