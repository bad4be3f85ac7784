#include "bench/study/runner.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/measure.h"
#include "bench/peer.h"
#include "qna/base/error.h"
#include "qna/kernels/implementation.h"

namespace qna::bench::study {
namespace {

class LocalRunner final : public Runner {
 public:
  explicit LocalRunner(const SubjectKind& kind) : kind_(kind) {}

  void prepare(const Problem& problem, const std::string&, Row& row) override {
    layer_ = kind_.make(problem.shape);
    problem_ = &problem;
    for (auto& [name, parameter] : layer_.parameters) parameter.requires_grad_(problem.train);
    row.difference = problem.difference(run(), kind_.family);
    row.version =
        fmt::format("{} kernels, torch {}", kernels::chosen_implementation().name, TORCH_VERSION);
    count_memory(row);
  }

  double seconds() override {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void release() override {
    if (problem_ != nullptr) forget_gradients();
    layer_ = {};
    problem_ = nullptr;
  }

 private:
  void forget_gradients() {
    problem_->x.mutable_grad() = at::Tensor();
    for (auto& [name, parameter] : layer_.parameters) parameter.mutable_grad() = at::Tensor();
  }

  at::Tensor run() {
    const at::AutoGradMode grad_mode(problem_->train);
    if (!problem_->train) return layer_.forward(problem_->x);
    forget_gradients();
    const at::Tensor y = layer_.forward(problem_->x);
    y.backward(problem_->gradient);
    return y.detach();
  }

  void count_memory(Row& row) {
    forget_gradients();
    const int64_t before = allocated_bytes();
    reset_peak();
    run();
    row.peak_bytes = peak_allocated_bytes() - before;
    const auto map = static_cast<int64_t>(problem_->x.nbytes());  // the answer is as large
    int64_t wanted = map;
    if (problem_->train) {
      wanted += map;
      for (const auto& [name, parameter] : layer_.parameters) {
        wanted += static_cast<int64_t>(parameter.nbytes());
      }
    }
    row.extra_bytes = row.peak_bytes - wanted;
    row.memory = "counted";
  }

  const SubjectKind& kind_;
  Layer layer_;
  const Problem* problem_ = nullptr;
};

// Started when it is needed, and again after a failure.
class PeerRunner final : public Runner {
 public:
  explicit PeerRunner(std::vector<std::string> command) : command_(std::move(command)) {}

  void prepare(const Problem& problem, const std::string& file, Row& row) override {
    try {
      if (peer_ == nullptr) peer_ = std::make_unique<Peer>(command_);
      row.version = peer_->version();
      const Case& c = problem.shape;
      const nlohmann::json request = {
          {"kernel", c.kernel}, {"height", c.side},    {"width", c.side},  {"dim", c.dim},
          {"heads", kHeads},    {"queries", kQueries}, {"pass", row.pass}, {"file", file}};
      const nlohmann::json answer = peer_->ask("case " + request.dump(), "case");
      row.skipped = answer.value("skipped", "");
      if (!row.measured()) return;
      if (answer.at("max_difference").is_number()) row.difference = answer["max_difference"];
      row.peak_bytes = answer.at("peak_bytes");
      row.extra_bytes = row.peak_bytes - answer.at("wanted_bytes").get<int64_t>();
      row.memory = answer.at("memory");
    } catch (const nlohmann::json::exception&) {
      peer_ = nullptr;
      fail("its answer to a case is not the protocol");
    } catch (const Error&) {
      peer_ = nullptr;
      throw;
    }
  }

  double seconds() override {
    try {
      check(peer_ != nullptr, "it does not run");
      return peer_->seconds(1);
    } catch (const Error&) {
      peer_ = nullptr;
      throw;
    }
  }

 private:
  const std::vector<std::string> command_;
  std::unique_ptr<Peer> peer_;
};

std::vector<std::string> peer_command(const SubjectKind& kind, const PeerSettings& settings) {
  const std::filesystem::path folder(settings.folder);
  std::string python = (folder / "../../build/peers/bin/python").lexically_normal().string();
  const bool jax = kind.peer == "jax";
  if (jax && !settings.jax_python.empty()) python = settings.jax_python;
  // The same settings of malloc as our program makes for itself, see cli/main.cc.
  std::vector<std::string> command = {"/usr/bin/env",
                                      "MALLOC_MMAP_THRESHOLD_=1073741824",
                                      "MALLOC_TRIM_THRESHOLD_=1073741824",
                                      python,
                                      (folder / "layer_worker.py").string(),
                                      "--subject",
                                      kind.peer,
                                      "--threads",
                                      std::to_string(settings.threads)};
  if (jax) command.insert(command.end(), {"--checkout", settings.jax_checkout});
  return command;
}

}  // namespace

std::unique_ptr<Runner> make_runner(const SubjectKind& kind, const PeerSettings& settings) {
  if (kind.make != nullptr) return std::make_unique<LocalRunner>(kind);
  return std::make_unique<PeerRunner>(peer_command(kind, settings));
}

}  // namespace qna::bench::study
