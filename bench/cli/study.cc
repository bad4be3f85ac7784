#include "bench/cli/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "bench/cli/peers.h"
#include "bench/model.h"
#include "bench/study/csv.h"
#include "bench/study/figures.h"
#include "bench/study/report.h"
#include "bench/study/worker.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/report/machine.h"

namespace qna::cli {
namespace {

namespace study = bench::study;

study::Rows read_rows(const std::string& path) { return study::from_csv(read_file(path), path); }

bool wants_peers(const study::StudyOptions& options) {
  const auto wanted = [&](const study::SubjectKind& kind) {
    const auto& names = options.subjects;
    return names.empty() || std::count(names.begin(), names.end(), kind.name) > 0;
  };
  const auto all = study::all_subjects();
  return std::any_of(all.begin(), all.end(), [&](const study::SubjectKind& kind) {
    return wanted(kind) && kind.make == nullptr;
  });
}

study::Rows measure(StudyArguments& a) {
  study::StudyOptions& options = a.options;
  if (a.quick) {
    options.cases = study::quick_plan();
    if (options.subjects.empty()) options.subjects = study::quick_subjects();
  }
  if (options.rounds == 0) options.rounds = a.quick ? 2 : 5;
  for (const std::string& name : options.subjects) study::find_subject(name);
  if (a.resume && std::filesystem::exists(a.csv)) options.known = read_rows(a.csv);
  // The rest is for the other subjects, for what malloc cannot use, and for the system.
  const int64_t memory = report::this_machine().memory_bytes;
  if (memory > 0) options.budget.bytes = memory / 2;
  options.peers.folder = bench::default_peers_folder();
  options.peers.program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (wants_peers(options))
    set_up_peers(options.peers.folder, "--subject qna,sasa,halo,window,conv");
  if (!a.csv.empty()) {
    options.save = [&a](const study::Rows& rows) { write_file(a.csv, study::to_csv(rows)); };
  }
  // As the file has them, so that a table made of it later is the same.
  return study::from_csv(study::to_csv(study::run_study(options)), "the study");
}

}  // namespace

void add_study(Command verb, StudyArguments& a, const std::vector<Option>& alien) {
  const std::string group = "The cost study";
  Option flag =
      verb.flag("--study", a.study,
                "Beside SASA, HaloNet, window attention, convolution; see docs/cost-study.md");
  flag.group(group);
  for (Option option : alien) flag.excludes(option);
  const std::vector<Option> own = {
      verb.option("--subject", a.options.subjects,
                  "Only these, such as qna,sasa,py-halo [all; --quick: without compiled ones]")
          .comma_separated(),
      verb.option("--figures", a.figures, "Draw the charts into this folder, as SVG"),
      verb.option("--from", a.from, "Do not measure: tables and charts of this CSV file")
          .existing_file(),
      verb.flag("--resume", a.resume, "Keep the cases that the file of --csv has already"),
      verb.option("--jax-checkout", a.options.peers.jax_checkout,
                  "The authors' code (github.com/moabarar/qna), to run their layer too")
          .existing_folder(),
      verb.option("--jax-python", a.options.peers.jax_python,
                  "A Python with jax, flax and safetensors for it [that of the peers]")
          .existing_file()};
  for (Option option : own) option.needs(flag).group(group);
}

void add_study_worker(Command program) {
  Command verb = program.hidden_verb("study-worker");
  auto subject = std::make_shared<std::string>();
  auto threads = std::make_shared<int>(1);
  verb.option("--subject", *subject).required();
  verb.option("--threads", *threads);
  verb.callback([subject, threads] { std::exit(study::run_worker(*subject, *threads)); });
}

void run_study(StudyArguments& a) {
  check(!a.resume || !a.csv.empty(), "--resume needs --csv, the file of the earlier run");
  const study::Rows rows = a.from.empty() ? measure(a) : read_rows(a.from);
  check(!rows.empty(), "there is nothing in {}", a.from);
  fmt::print("{}", study::report(rows));
  if (!a.figures.empty()) {
    for (const std::string& path : study::write_figures(rows, a.figures)) {
      fmt::print(stderr, "wrote {}\n", path);
    }
  }
  if (!a.csv.empty() && a.from.empty()) fmt::print(stderr, "wrote {}\n", a.csv);
}

}  // namespace qna::cli
