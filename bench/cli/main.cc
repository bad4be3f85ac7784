// The program qna-bench: a table of benchmarks, one file each. `qna bench` starts it.

#include "bench/cli/study.h"
#include "bench/cli/verbs.h"
#include "cli/program.h"
#include "cli/torch_program.h"

int main(int argc, char** argv) {
  qna::cli::Program program(qna::cli::program_name(argv[0]), "Measure speed and memory");
  program.version([] { return qna::cli::version_text("qna-bench"); });
  qna::cli::Command command = program.command();
  command.require_verb();
  qna::cli::add_bench_detect(command);
  qna::cli::add_bench_guard(command);
  qna::cli::add_bench_layer(command);
  qna::cli::add_bench_loader(command);
  qna::cli::add_bench_model(command);
  qna::cli::add_bench_product(command);
  qna::cli::add_bench_upsample(command);
  qna::cli::add_bench_workers(command);
  qna::cli::add_study_worker(command);
  return qna::cli::run_torch_program(program, argc, argv);
}
