// `qna bench detect`.
#pragma once

#include <CLI/CLI.hpp>

namespace qna::cli {

void add_bench_detect(CLI::App& verbs);

// Not for people: what `bench model` and `bench detect` start.
void add_bench_workers(CLI::App& verbs);

}  // namespace qna::cli
