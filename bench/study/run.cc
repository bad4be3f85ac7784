#include "bench/study/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "bench/measure.h"
#include "bench/temporary_folder.h"
#include "cli/progress.h"
#include "qna/base/error.h"
#include "qna/base/version.h"
#include "qna/report/machine.h"

namespace qna::bench::study {
namespace {

// One subject in one case.
struct Entry {
  const SubjectKind* kind;
  Runner* runner;
  Row row;
  Turns turns = {};
  std::vector<double> times = {};  // in milliseconds
};

class Study {
 public:
  explicit Study(const StudyOptions& options) : options_(options), rows_(options.known) {
    for (const SubjectKind& kind : all_subjects()) {
      const auto& wanted = options.subjects;
      if (!wanted.empty() && std::count(wanted.begin(), wanted.end(), kind.name) == 0) continue;
      kinds_.push_back(&kind);
      runners_[kind.name] = make_runner(kind, options.peers);
      // Those who are in another process but of this program make the answers there.
      if (kind.make == nullptr) peer_families_.insert(kind.family);
      if (options.peers.program.empty()) families_.insert(kind.family);
      families_.insert(peer_families_.begin(), peer_families_.end());
    }
  }

  Rows run() {
    const size_t steps = options_.cases.size() * options_.passes.size() * kinds_.size();
    cli::Progress progress(static_cast<int64_t>(steps));
    progress_ = &progress;
    for (const Case& shape : options_.cases)
      for (const std::string& pass : options_.passes) {
        if (!is_known(shape, pass)) run_case(shape, pass);
        done_ += static_cast<int64_t>(kinds_.size());
      }
    return rows_;
  }

 private:
  bool is_known(const Case& shape, const std::string& pass) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](const Row& row) { return row.shape == shape && row.pass == pass; });
  }

  void show(const Entry& entry, const char* what) {
    const Case& c = entry.row.shape;
    progress_->show(done_ + shown_,
                    fmt::format("{}, window {}, map {}x{}x{}: {} {}", entry.row.pass, c.kernel,
                                c.side, c.side, c.dim, entry.kind->name, what));
  }

  void run_case(const Case& shape, const std::string& pass) {
    const Problem problem(shape, pass == kTrain, families_);
    const std::string file = folder_.file("case.safetensors");
    if (!peer_families_.empty()) problem.write(file, peer_families_);
    std::vector<Entry> entries;
    shown_ = 0;
    for (const SubjectKind* kind : kinds_) {
      entries.push_back({kind, runners_[kind->name].get(), new_row(*kind, shape, pass)});
      show(entries.back(), "gets ready");
      prepare(entries.back(), problem, file);
      ++shown_;
    }
    show(entries.front(), "and all others take turns");
    take_turns(entries);
    for (Entry& entry : entries) {
      entry.runner->release();
      summarize(entry);
      rows_.push_back(std::move(entry.row));
    }
    options_.save(rows_);
  }

  Row new_row(const SubjectKind& kind, const Case& shape, const std::string& pass) const {
    Row row;
    row.subject = kind.name;
    row.pass = pass;
    row.shape = shape;
    row.threads = options_.peers.threads;
    row.machine = report::machine_description();
    row.commit = commit();
    return row;
  }

  void prepare(Entry& entry, const Problem& problem, const std::string& file) {
    Row& row = entry.row;
    row.skipped = entry.kind->peer == "jax" && options_.peers.jax_checkout.empty()
                      ? "no --jax-checkout was given"
                      : over_budget(rows_, row.subject, row.pass, row.shape, options_.budget);
    if (!row.measured()) return;
    attempt(entry, [&] {
      entry.runner->prepare(problem, file, row);
      if (!row.measured()) return;
      const double seconds = entry.runner->seconds();
      entry.times.push_back(1e3 * seconds);
      entry.turns = turns_for(seconds, options_.rounds);
    });
  }

  // A failure is a row without numbers.
  template <typename Work>
  static void attempt(Entry& entry, const Work& work) {
    std::string reason;
    try {
      work();
      return;
    } catch (const Error& error) {
      reason = error.what();
    } catch (const c10::Error& error) {
      reason = error.what_without_backtrace();
    } catch (const std::bad_alloc&) {
      reason = "no memory";
    }
    entry.row.skipped = "failed: " + reason;
    entry.times.clear();
  }

  static void take_turns(std::vector<Entry>& entries) {
    int rounds = 0;
    for (const Entry& entry : entries) rounds = std::max(rounds, entry.turns.rounds);
    for (int round = 0; round < rounds; ++round)
      for (Entry& entry : entries) {
        if (!entry.row.measured() || round >= entry.turns.rounds) continue;
        // Threads of the process before may still spin.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        attempt(entry, [&] {
          for (int i = 0; i < entry.turns.repeats; ++i) {
            entry.times.push_back(1e3 * entry.runner->seconds());
          }
        });
      }
  }

  static void summarize(Entry& entry) {
    std::vector<double>& t = entry.times;
    if (t.empty()) return;
    std::sort(t.begin(), t.end());
    Row& row = entry.row;
    row.min_ms = t.front();
    row.median_ms = t[t.size() / 2];
    row.spread = (t[(t.size() - 1) * 9 / 10] - t.front()) / row.median_ms;
    row.runs = static_cast<int>(t.size());
  }

  const StudyOptions& options_;
  const TemporaryFolder folder_;
  std::vector<const SubjectKind*> kinds_;
  std::map<std::string, std::unique_ptr<Runner>> runners_;
  std::set<std::string> families_, peer_families_;
  Rows rows_;
  cli::Progress* progress_ = nullptr;
  int64_t done_ = 0, shown_ = 0;
};

void add_case(std::vector<Case>& cases, const Case& shape) {
  if (std::count(cases.begin(), cases.end(), shape) == 0) cases.push_back(shape);
}

std::vector<Case> sweeps(std::initializer_list<int64_t> kernels, const Case& base,
                         std::initializer_list<int64_t> sides, std::initializer_list<int64_t> dims,
                         int64_t dims_side) {
  std::vector<Case> cases;
  for (const int64_t kernel : kernels) add_case(cases, {kernel, base.side, base.dim});
  for (const int64_t side : sides) add_case(cases, {base.kernel, side, base.dim});
  for (const int64_t dim : dims) add_case(cases, {base.kernel, dims_side, dim});
  return cases;
}

}  // namespace

std::vector<Case> full_plan() {
  return sweeps({3, 5, 7, 9, 11, 13, 17, 21}, {7, 256, 64}, {32, 64, 128, 256, 512},
                {64, 128, 256, 512}, 64);
}

std::vector<Case> quick_plan() {
  return sweeps({3, 7, 11}, {7, 64, 64}, {32, 64, 128}, {64, 128}, 64);
}

std::vector<std::string> quick_subjects() {
  std::vector<std::string> names;
  for (const SubjectKind& kind : all_subjects()) {
    if (!kind.peer.ends_with("-compiled")) names.push_back(kind.name);
  }
  return names;
}

Turns turns_for(double seconds, int rounds) {
  constexpr double kTurn = 0.1;   // about so long does a fast subject run each time
  constexpr double kTotal = 3.0;  // about so long does a slow one run in all
  const auto most = static_cast<int>(kTotal / seconds);
  return {std::min(rounds, most), std::clamp(static_cast<int>(kTurn / seconds), 1, 20)};
}

Rows run_study(const StudyOptions& options) {
  set_up_process(options.peers.threads);
  for (const std::string& name : options.subjects) find_subject(name);
  return Study(options).run();
}

}  // namespace qna::bench::study
