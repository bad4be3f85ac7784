#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <deque>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/report/metric_text.h"
#include "qna/sweep/run.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

struct SweepArguments {
  std::vector<std::string> sweeps;
  std::vector<std::string> settings;
  std::vector<int64_t> seeds;
  std::vector<std::string> known;
  std::string out = "runs";
  int parallel = 1;
  int threads = 0;
  bool dry_run = false;
  bool report = false;
  bool list = false;
};

std::atomic<bool> sweep_stop = false;

void on_sweep_signal(int) {
  // A second signal ends at once; the runs end with this program.
  if (sweep_stop.exchange(true)) std::_Exit(130);
}

std::string long_duration(double seconds) {
  if (!std::isfinite(seconds)) return "an unknown time";
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  const auto minutes = static_cast<int64_t>(seconds / 60 + 0.5);
  return minutes < 90 ? fmt::format("{} min", minutes)
                      : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

void list_sweeps() {
  check(!bundled_sweeps().empty(), "the sweeps that come with the program are not beside it");
  for (const auto& [name, path] : bundled_sweeps()) {
    const sweep::Sweep each = sweep::read_sweep(path, {.find_recipe = find_recipe});
    fmt::print("{:20}  {}\n{:20}  {} rows, {} seeds\n", name, each.question.title, "",
               each.rows.size(), each.seeds.size());
  }
  fmt::print("\nNext: qna sweep NAME --dry-run --set data.path=FOLDER\n");
}

// The files of a folder, or the one that is named.
std::vector<std::string> sweep_files(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      files.push_back(find_sweep(argument));
      continue;
    }
    const size_t before = files.size();
    for (const NamedRecipe& each : recipes_in(argument)) files.push_back(each.path);
    check(files.size() > before, "{}: there is no sweep (.toml) in this folder", argument);
  }
  return files;
}

class SweepScreen {
 public:
  sweep::Watcher watcher() {
    return {.progress =
                [this](int64_t done, int64_t total, const std::string& now) {
                  if (!bar_) bar_ = std::make_unique<Progress>(total);
                  bar_->show(done, now);
                },
            .finished =
                [this](const sweep::Sweep& each, const sweep::Run& run,
                       const sweep::RunResult& result) {
                  if (bar_) bar_->wipe();
                  const std::string& metric = each.question.metric;
                  fmt::print("{}: {}, seed {}: {} {}, {}\n", each.name, each.rows[run.row].name,
                             run.seed, metric, report::metric_text(result.numbers.at(metric)),
                             long_duration(result.seconds));
                  std::fflush(stdout);
                },
            .failed =
                [this](const sweep::Sweep& each, const sweep::Run& run, const std::string& why) {
                  if (bar_) bar_->wipe();
                  fmt::print(stderr, "{}: {}, seed {} failed: {}\n", each.name,
                             each.rows[run.row].name, run.seed, why);
                }};
  }
  void end() { bar_.reset(); }

 private:
  std::unique_ptr<Progress> bar_;
};

// What the rows are and what they cost; returns the seconds that are left.
double print_cost(const sweep::Job& job, const sweep::Summary& now, int parallel) {
  const sweep::Sweep& each = *job.sweep;
  size_t width = 3;
  for (const sweep::Row& row : each.rows) width = std::max(width, row.name.size());
  fmt::print("{}: {}\n", each.name, each.question.title);
  fmt::print("  {:{}}  {:>12}  {:>8}  {:>14}\n", "row", width, "M parameters", "GFLOPs",
             "minutes a run");
  for (size_t i = 0; i < each.rows.size(); ++i) {
    const double minutes = job.plans[i].seconds / 60;  // not a number where all runs are known
    fmt::print("  {:{}}  {:12.3f}  {:8.3f}  {:>14}\n", each.rows[i].name, width,
               static_cast<double>(job.plans[i].parameters) / 1e6, job.plans[i].gflops,
               std::isfinite(minutes) ? fmt::format("{:.1f}", minutes) : "-");
  }
  const double left = sweep::seconds_left(each, job.plans, now.runs, parallel);
  fmt::print("  {} rows, {} seeds: {} of {} runs are left, about {}\n\n", each.rows.size(),
             each.seeds.size(), each.runs.size() - static_cast<size_t>(now.finished()),
             each.runs.size(), long_duration(left));
  std::fflush(stdout);
  return left;
}

void print_tables(const std::vector<sweep::Job>& jobs) {
  for (const sweep::Job& job : jobs) {
    const sweep::Summary summary = sweep::summarize(*job.sweep, job.plans, job.folder);
    fmt::print("\n{}\n\n{}\n", job.sweep->question.title, sweep::to_text(summary));
    fmt::print("files  {}\n",
               (fs::path(job.folder) / "{rows.csv,runs.csv,claims.csv,sweep.html}").string());
  }
}

// For the count of what is left.
sweep::RunResult will_have(const sweep::Sweep& each, const sweep::Run& run) {
  sweep::RunResult result{.trained = true, .finished = true, .recipe = run.fingerprint};
  for (const std::string& name : each.numbers()) result.numbers[name] = 0;
  return result;
}

// What is there, in the folder or as a known result.
sweep::Summary look(const sweep::Job& job, const sweep::KnownRuns& known) {
  sweep::Summary now = sweep::summarize(*job.sweep, job.plans, job.folder);
  for (size_t i = 0; i < now.runs.size(); ++i) {
    const auto found = known.find(*job.sweep, job.sweep->runs[i]);
    if (found && !now.runs[i].finished) now.runs[i] = *found;
  }
  return now;
}

// With what it costs, said before anything is run.
std::vector<sweep::Job> plan_jobs(const SweepArguments& a, const std::deque<sweep::Sweep>& sweeps,
                                  const sweep::Programs& programs, const sweep::KnownRuns& known) {
  std::vector<sweep::Job> jobs;
  sweep::KnownRuns planned = known;  // and what an earlier sweep will have
  double left = 0;
  for (const sweep::Sweep& each : sweeps) {
    sweep::Job& job =
        jobs.emplace_back(sweep::Job{.sweep = &each,
                                     .plans = sweep::plan(each),
                                     .folder = (fs::path(a.out) / each.name).string()});
    if (a.report) continue;
    fs::create_directories(job.folder);
    const sweep::Summary now = look(job, planned);
    const bool knows = std::ranges::any_of(
        now.rows, [](const sweep::RowResult& row) { return row.seconds.count > 0; });
    const bool asks = !knows && now.finished() < std::ssize(now.runs);
    const double speed =
        asks ? sweep::measure_speed(each, job.folder, programs, sweep_stop) : sweep::kNone;
    sweep::estimate(job.plans, now.rows, speed);
    left += print_cost(job, now, a.parallel);
    for (const sweep::Run& run : each.runs) planned.add(will_have(each, run));
    check(!sweep_stop, "stopped");
  }
  if (!a.report) {
    fmt::print("{} sweep{}, about {} with {} run{} at a time of {} thread{} each (estimated)\n\n",
               jobs.size(), jobs.size() == 1 ? "" : "s", long_duration(left), a.parallel,
               a.parallel == 1 ? "" : "s", programs.threads, programs.threads == 1 ? "" : "s");
    std::fflush(stdout);
  }
  return jobs;
}

void run_sweep_verb(const SweepArguments& a) {
  if (a.list) return list_sweeps();
  check(!a.sweeps.empty(),
        "name a sweep: a file (.toml), a folder of them, or one of 'qna sweep "
        "--list'");
  std::deque<sweep::Sweep> sweeps;
  for (const std::string& file : sweep_files(a.sweeps)) {
    sweeps.push_back(sweep::read_sweep(
        file, {.find_recipe = find_recipe, .settings = a.settings, .seeds = a.seeds}));
    const auto same = std::ranges::count(sweeps, sweeps.back().name, &sweep::Sweep::name);
    check(same == 1, "{}: another sweep is called '{}' too; they would share a folder", file,
          sweeps.back().name);
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const sweep::Programs programs{
      .qna = fs::read_symlink("/proc/self/exe").string(),
      .threads = a.threads > 0 ? a.threads : std::max(1, cores / a.parallel)};
  std::signal(SIGINT, on_sweep_signal);
  std::signal(SIGTERM, on_sweep_signal);
  sweep::KnownRuns known;
  for (const std::string& path : a.known) known.read(path);
  const std::vector<sweep::Job> jobs = plan_jobs(a, sweeps, programs, known);
  if (a.dry_run) return;
  if (a.report) {
    for (const sweep::Job& job : jobs) {
      check(fs::is_directory(job.folder), "{}: there is no such folder; has the sweep been run?",
            job.folder);
      sweep::take_known(job, known);
      sweep::write_tables(sweep::summarize(*job.sweep, job.plans, job.folder), job.folder);
    }
    return print_tables(jobs);
  }
  SweepScreen screen;
  const sweep::Outcome outcome = sweep::run_sweeps(
      jobs, {.programs = programs, .parallel = a.parallel, .known = std::move(known)},
      screen.watcher(), sweep_stop);
  screen.end();
  check(!outcome.stopped, "stopped; the runs are saved. The same command goes on");
  print_tables(jobs);
  check(outcome.failed == 0, "{} run{} failed; the same command tries again", outcome.failed,
        outcome.failed == 1 ? "" : "s");
}

}  // namespace

void add_sweep(Command program) {
  Command verb = program.verb("sweep", "Train many variants with several seeds, and compare them");
  auto a = std::make_shared<SweepArguments>();
  verb.option("sweeps", a->sweeps,
              "Sweeps (.toml), folders of them, or names of those that come with the program")
      .type_name("SWEEP");
  verb.option("--set", a->settings,
              "Another value for a key of all runs' recipes, such as\n"
              "data.path=pictures/; may be given often")
      .one_value_each()
      .type_name("KEY=VALUE");
  verb.option("--seeds", a->seeds, "In place of those of the sweeps, such as 1,2,3,4,5")
      .comma_separated()
      .type_name("SEEDS");
  verb.option("--known", a->known,
              "Results that need not be made again: a runs.csv, or a folder of\n"
              "sweeps, such as of another machine; may be given often")
      .one_value_each()
      .type_name("PATH");
  verb.option("-o,--out", a->out, "Folder in which each sweep has one of its name [runs]")
      .type_name("FOLDER");
  verb.option("--parallel", a->parallel, "Runs at a time [1]").range(1, 256);
  verb.option("--threads", a->threads, "Threads of each run [the cores, shared among the runs]")
      .range(1, 1024);
  verb.flag("--dry-run", a->dry_run, "Only say what would be run and what it costs");
  verb.flag("--report", a->report, "Only write the tables and the page anew");
  verb.flag("--list", a->list, "List the sweeps that come with the program");
  verb.footer(
      "A sweep names a recipe, what differs from row to row, and seeds. Each run has a folder\n"
      "like one of 'qna train'. rows.csv, runs.csv, claims.csv and sweep.html grow while it\n"
      "runs. It may be stopped or killed at any time: the same command goes on with the\n"
      "half-done runs, to the same numbers.\n\n"
      "Examples:\n"
      "  qna sweep mine.toml --dry-run\n"
      "  qna sweep mine.toml --parallel 2\n"
      "  qna sweep queries --set data.path=tiny-imagenet-200 --parallel 2\n"
      "  qna sweep recipes/sweeps --parallel 2 -o evidence\n"
      "  qna sweep recipes/sweeps --known results/evidence -o evidence");
  verb.callback([a] { run_sweep_verb(*a); });
}

}  // namespace qna::cli
