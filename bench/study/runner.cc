#include "bench/study/runner.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/peer.h"
#include "qna/base/error.h"

namespace qna::bench::study {
namespace {

// Seconds that a subject may take: to make a case ready, which may compile it and is three runs,
// and for a run. What a library does with a shape can surprise: oneDNN trains convolutions with
// windows above 14 by plain loops, which take hours.
constexpr double kPrepareLimit = 60, kCompileLimit = 150, kRunLimit = 60;

// Started when it is needed, and again after a failure.
class PeerRunner final : public Runner {
 public:
  PeerRunner(std::vector<std::string> command, double limit)
      : command_(std::move(command)), limit_(limit) {}

  void prepare(const Problem& problem, const std::string& file, Row& row) override {
    try {
      if (peer_ == nullptr) peer_ = std::make_unique<Peer>(command_);
      row.version = peer_->version();
      const Case& c = problem.shape;
      const nlohmann::json request = {
          {"kernel", c.kernel}, {"height", c.side},    {"width", c.side},  {"dim", c.dim},
          {"heads", kHeads},    {"queries", kQueries}, {"pass", row.pass}, {"file", file}};
      const nlohmann::json answer = peer_->ask("case " + request.dump(), "case", limit_);
      row.skipped = answer.value("skipped", "");
      if (!row.measured()) return;
      if (answer.at("max_difference").is_number()) row.difference = answer["max_difference"];
      row.peak_bytes = answer.at("peak_bytes");
      row.extra_bytes = row.peak_bytes - answer.at("wanted_bytes").get<int64_t>();
      row.memory = answer.at("memory");
      row.version = answer.value("version", row.version);
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
      return peer_->ask("run 1", "seconds", kRunLimit)["seconds"];
    } catch (const Error&) {
      peer_ = nullptr;
      throw;
    }
  }

  void release() override {
    try {
      if (peer_ != nullptr) peer_->ask("release", "released", kRunLimit);
    } catch (const Error&) {
      peer_ = nullptr;
    }
  }

 private:
  const std::vector<std::string> command_;
  const double limit_;
  std::unique_ptr<Peer> peer_;
};

std::vector<std::string> python_command(const SubjectKind& kind, const PeerSettings& settings) {
  const std::filesystem::path folder(settings.folder);
  std::string python = (folder / "../../build/peers/bin/python").lexically_normal().string();
  const bool jax = kind.peer == "jax";
  if (jax && !settings.jax_python.empty()) python = settings.jax_python;
  // The same settings of malloc as in our own processes, see set_up_process and
  // cli/torch_program.cc.
  std::vector<std::string> command = {"/usr/bin/env",
                                      fmt::format("MALLOC_MMAP_THRESHOLD_={}", kLargeBlock),
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

std::vector<std::string> own_command(const SubjectKind& kind, const PeerSettings& settings) {
  return {settings.program, "study-worker", "--subject",
          kind.name,        "--threads",    std::to_string(settings.threads)};
}

}  // namespace

std::unique_ptr<Runner> make_runner(const SubjectKind& kind, const PeerSettings& settings) {
  const bool own = kind.make != nullptr;
  if (own && settings.program.empty()) return make_local_runner(kind);
  const bool compiles = kind.peer == "jax" || kind.peer.ends_with("-compiled");
  return std::make_unique<PeerRunner>(
      own ? own_command(kind, settings) : python_command(kind, settings),
      compiles ? kCompileLimit : kPrepareLimit);
}

}  // namespace qna::bench::study
