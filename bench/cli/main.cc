// The program qna-bench: a table of benchmarks, one file each. `qna bench` starts it.
#include <CLI/CLI.hpp>

#include "bench/cli/study.h"
#include "bench/cli/verbs.h"
#include "cli/program.h"
#include "cli/torch_program.h"

int main(int argc, char** argv) {
  CLI::App app("Measure speed and memory");
  app.name(qna::cli::program_name(argv[0]));
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.set_version_flag("--version", qna::cli::version_text("qna-bench"));
  qna::cli::add_bench_detect(app);
  qna::cli::add_bench_layer(app);
  qna::cli::add_bench_loader(app);
  qna::cli::add_bench_model(app);
  qna::cli::add_bench_upsample(app);
  qna::cli::add_bench_workers(app);
  qna::cli::add_study_worker(app);
  return qna::cli::run_torch_program(app, argc, argv);
}
