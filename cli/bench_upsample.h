// `qna bench upsample`.
#pragma once

#include <CLI/CLI.hpp>

namespace qna::cli {

void add_bench_upsample(CLI::App& verbs);

}  // namespace qna::cli
