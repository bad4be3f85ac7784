#include "qna/sweep/run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/format/fields.h"
#include "qna/format/toml.h"
#include "qna/kinds/kind.h"
#include "qna/recipe/detection_options.h"
#include "qna/report/comparison.h"
#include "qna/sweep/child.h"

namespace qna::sweep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kPause = std::chrono::milliseconds(100);

std::string text_of(const std::string& path) {
  std::string text = read_file(path);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// The epoch that the log of a run has come to; 0: none yet. Looks at the end of the file only, for
// it is asked often.
int64_t epoch_now(const std::string& log) {
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  if (!file.good()) return 0;
  constexpr std::streamoff kEnd = 4096;
  file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kEnd));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t word = text.rfind("\"epoch\":");
  return word == std::string::npos ? 0 : std::atoll(text.c_str() + word + 8);
}

// A run with a program under way: training first, then its measures.
class Worker {
 public:
  Worker(const Job& job, const Run& run, const Programs& programs)
      : job_(&job), run_(&run), programs_(programs), folder_(fs::path(job.folder) / run.folder) {
    fs::create_directories(folder_);
    go_on();
  }

  const Job& job() const { return *job_; }
  const Run& run() const { return *run_; }
  void ask_to_stop() {
    if (child_) child_->ask_to_stop();
  }
  const std::string& why() const { return why_; }  // of a failure; empty: none

  // Whether nothing is left to wait for.
  bool look() {
    const std::optional<Ending> ending = child_->ended();
    if (!ending) return false;
    child_.reset();
    take(*ending);
    if (why_.empty()) go_on();
    return child_ == nullptr;
  }

  // "sasa/seed-1 epoch 3/6"
  std::string describe() const {
    if (measure_ != nullptr) return fmt::format("{} {}", run_->folder, measure_->name);
    return fmt::format("{} epoch {}/{}", run_->folder,
                       epoch_now(report::run_log_path(folder_.string())), run_->recipe.epochs);
  }

 private:
  std::string path(const char* name) const { return (folder_ / name).string(); }

  // The next program of the run, if one is left.
  void go_on() {
    if (!read_record(folder_.string()).trained) return train();
    for (const Measure& measure : job_->sweep->measures) {
      if (!is_measured(measure, folder_.string())) return evaluate(measure);
    }
  }

  void train() {
    wait_until_free();
    Record record = read_record(folder_.string());
    if (record.recipe.empty()) {
      record.recipe = run_->fingerprint;
      write_record(folder_.string(), record);
    }
    const std::string recipe = folder_.string() + ".toml";
    write_file(recipe, format::to_toml(to_json(run_->recipe)));
    start({"train", recipe, "--out", folder_.string(), "--resume", "--quiet"});
  }

  void evaluate(const Measure& measure) {
    measure_ = &measure;
    std::vector<std::string> words = {"eval", path("last.safetensors"), "--json"};
    if (kinds::row_of_task(run_->recipe.task).kind == config::Kind::kDetector) {
      const auto boxes = tasks::detection_options(run_->recipe.sections).val;
      words.insert(words.end(), {boxes.images, "--annotations", boxes.annotations});
    } else {
      const json& data = run_->recipe.sections.at("data");
      words.push_back(data.value("path", std::string()));
      if (data.contains("val")) words.insert(words.end(), {"--split", data["val"]});
    }
    words.insert(words.end(), measure.eval.begin(), measure.eval.end());
    start(std::move(words));
  }

  void start(std::vector<std::string> words) {
    words.insert(words.begin(), programs_.qna);
    words.insert(words.end(), {"--threads", std::to_string(programs_.threads)});
    child_ = std::make_unique<Child>(words, path("output.txt"), path("errors.txt"));
  }

  void take(const Ending& ending) {
    Record record = read_record(folder_.string());
    if (measure_ == nullptr) {
      record.peak_memory_mb = std::max(record.peak_memory_mb, ending.peak_memory_mb);
      record.trained = ending.good;
      write_record(folder_.string(), record);
    }
    if (!ending.good) {
      why_ = text_of(path("errors.txt"));
      if (why_.empty()) why_ = "the program ended without a word";
    } else if (measure_ != nullptr) {
      write_measure(folder_.string(), *measure_,
                    format::parse_json(text_of(path("output.txt")), path("output.txt")));
    }
    measure_ = nullptr;
    std::error_code error;
    fs::remove(path("output.txt"), error);
    if (why_.empty()) fs::remove(path("errors.txt"), error);
  }

  // A program that was killed with an earlier sweep may take a moment to go.
  void wait_until_free() {
    FolderLock lock;
    for (int i = 0; i < 100 && !lock.take(folder_.string()); ++i) {
      std::this_thread::sleep_for(kPause);
    }
  }

  const Job* job_;
  const Run* run_;
  Programs programs_;
  fs::path folder_;
  std::unique_ptr<Child> child_;
  const Measure* measure_ = nullptr;  // that is made now; none: it trains
  std::string why_;
};

void write_tables_of(const Job& job) {
  write_tables(summarize(*job.sweep, job.plans, job.folder), job.folder);
}

std::string describe_all(const std::vector<std::unique_ptr<Worker>>& workers) {
  std::vector<std::string> words;
  for (const auto& worker : workers) words.push_back(worker->describe());
  return fmt::format("{}", fmt::join(words, ", "));
}

// A run that is trained needs only to be measured.
bool take(const Job& job, const Run& run, const KnownRuns& known) {
  const std::string folder = (fs::path(job.folder) / run.folder).string();
  const std::optional<RunResult> found = known.find(*job.sweep, run);
  if (!found || read_record(folder).trained) return false;
  write_taken(folder, run, *found);
  return true;
}

using Waiting = std::deque<std::pair<const Job*, const Run*>>;

// The first that nobody is at work on for another sweep; the end: none.
Waiting::iterator next_of(Waiting& waiting, const std::vector<std::unique_ptr<Worker>>& workers) {
  return std::ranges::find_if(waiting, [&](const auto& each) {
    return std::ranges::none_of(workers, [&](const std::unique_ptr<Worker>& worker) {
      return worker->run().fingerprint == each.second->fingerprint;
    });
  });
}

}  // namespace

void take_known(const Job& job, const KnownRuns& known) {
  for (const Run& run : job.sweep->runs) {
    if (!read_result(*job.sweep, run, job.folder).finished) take(job, run, known);
  }
}

Outcome run_sweeps(const std::vector<Job>& jobs, RunOptions options, const Watcher& watcher,
                   const std::atomic<bool>& stop) {
  std::deque<FolderLock> locks;
  Waiting waiting;
  for (const Job& job : jobs) {
    fs::create_directories(job.folder);
    check(locks.emplace_back().take(job.folder), "{}: another sweep is at work in this folder",
          job.folder);
    for (const Run& run : job.sweep->runs) {
      const RunResult result = read_result(*job.sweep, run, job.folder);
      if (result.finished) {
        options.known.add(result);
      } else {
        waiting.emplace_back(&job, &run);
      }
    }
    write_tables_of(job);
  }
  const auto total = static_cast<int64_t>(waiting.size());
  int64_t done = 0;
  Outcome outcome;
  std::vector<std::unique_ptr<Worker>> workers;
  const auto finish = [&](const Job& job, const Run& run) {
    ++done;
    const RunResult result = read_result(*job.sweep, run, job.folder);
    options.known.add(result);
    watcher.finished(*job.sweep, run, result);
    write_tables_of(job);
  };
  while (!workers.empty() || (!waiting.empty() && !stop)) {
    while (!stop && !waiting.empty() && workers.size() < static_cast<size_t>(options.parallel)) {
      const auto next = next_of(waiting, workers);
      if (next == waiting.end()) break;
      const auto [job, run] = *next;
      waiting.erase(next);
      if (take(*job, *run, options.known)) {
        finish(*job, *run);
        continue;
      }
      workers.push_back(std::make_unique<Worker>(*job, *run, options.programs));
    }
    if (stop) {
      for (const auto& worker : workers) worker->ask_to_stop();
    }
    watcher.progress(done, total, describe_all(workers));
    std::this_thread::sleep_for(kPause);
    for (size_t i = 0; i < workers.size();) {
      if (!workers[i]->look()) {
        ++i;
        continue;
      }
      const std::unique_ptr<Worker> ended = std::move(workers[i]);
      workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(i));
      const Job& job = ended->job();
      if (!ended->why().empty()) {
        if (stop) continue;  // it was asked to
        ++outcome.failed;
        watcher.failed(*job.sweep, ended->run(), ended->why());
        continue;
      }
      finish(job, ended->run());
    }
  }
  outcome.stopped = stop;
  return outcome;
}

}  // namespace qna::sweep
