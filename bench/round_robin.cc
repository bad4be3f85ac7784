#include "bench/round_robin.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/measure.h"
#include "bench/peer.h"
#include "cli/progress.h"
#include "qna/base/error.h"
#include "qna/base/version.h"
#include "qna/report/machine.h"

namespace qna::bench {
namespace {

// About this long does a subject run each time it is its turn.
constexpr double kTurnSeconds = 0.7;

struct Running {
  ModelResult result;
  std::unique_ptr<Peer> peer = nullptr;  // none: it failed
  int batches = 1;                       // per turn
  std::vector<double> speeds = {};

  void start(std::vector<std::string> command) {
    const std::vector<std::string> common = {"--batch",   std::to_string(result.batch),
                                             "--threads", std::to_string(result.threads),
                                             "--image",   size_text(result.image)};
    command.insert(command.end(), common.begin(), common.end());
    attempt([&] {
      peer = std::make_unique<Peer>(command);
      batches = std::clamp(static_cast<int>(kTurnSeconds / peer->seconds(1)), 1, 200);
      result.version = peer->version();
      result.peak_bytes = peer->peak_bytes();
      if (peer->macs() > 0) result.macs = peer->macs();
    });
  }

  void take_turn() {
    if (peer == nullptr) return;
    // Threads of the one before may still spin.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    attempt([&] {
      speeds.push_back(static_cast<double>(batches * result.batch) / peer->seconds(batches));
    });
  }

  void finish() {
    peer = nullptr;
    if (speeds.empty()) return;
    std::sort(speeds.begin(), speeds.end());
    result.slowest = speeds.front();
    result.fastest = speeds.back();
    result.images_per_second = speeds[speeds.size() / 2];
  }

 private:
  template <typename Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      result.error = error.what();
      peer = nullptr;
      speeds.clear();
    }
  }
};

}  // namespace

std::vector<ModelResult> take_turns(const std::vector<Runner>& runners, int rounds,
                                    const std::string& what) {
  cli::Progress progress(static_cast<int64_t>(runners.size()) * (rounds + 1));
  int64_t done = 0;
  std::vector<Running> subjects;
  for (const Runner& runner : runners) {
    progress.show(done++, fmt::format("{}: {} {} gets ready", what, runner.result.subject,
                                      runner.result.model));
    subjects.push_back({.result = runner.result});
    subjects.back().start(runner.command);
  }
  for (int round = 0; round < rounds; ++round)
    for (Running& s : subjects) {
      progress.show(done++, fmt::format("{}: {} {}", what, s.result.subject, s.result.model));
      s.take_turn();
    }
  std::vector<ModelResult> results;
  for (Running& s : subjects) {
    s.finish();
    results.push_back(std::move(s.result));
  }
  return results;
}

std::string model_csv(const std::vector<ModelResult>& results) {
  std::string out =
      "subject,model,batch,image,threads,dtype,images_per_second,peak_bytes,machine,commit,"
      "slowest,fastest,macs,version\n";
  for (const ModelResult& r : results) {
    if (!r.error.empty()) continue;
    out += fmt::format("{},{},{},{},{},float32,{:.3f},{},\"{}\",{},{:.3f},{:.3f},{:.0f},\"{}\"\n",
                       r.subject, r.model, r.batch, size_text(r.image), r.threads,
                       r.images_per_second, r.peak_bytes, report::machine_description(), commit(),
                       r.slowest, r.fastest, r.macs, r.version);
  }
  return out;
}

std::string size_text(std::array<int64_t, 2> size) {
  return size[0] == size[1] ? std::to_string(size[0]) : fmt::format("{}x{}", size[0], size[1]);
}

std::string default_peers_folder() { return QNA_PEERS_FOLDER; }

std::vector<std::string> python_peer(const std::string& peers_folder, const std::string& script) {
  const std::filesystem::path folder(peers_folder);
  // The same settings of malloc as in our own processes, see cli/torch_program.cc.
  return {"/usr/bin/env", "MALLOC_MMAP_THRESHOLD_=1073741824", "MALLOC_TRIM_THRESHOLD_=1073741824",
          (folder / "../../build/peers/bin/python").lexically_normal().string(),
          (folder / script).string()};
}

}  // namespace qna::bench
