// What the programs with LibTorch, qna-train and qna-bench, have in common.
#pragma once

#include <CLI/CLI.hpp>

namespace qna::cli {

// As run_program(), with malloc set for LibTorch's maps and its errors without their backtraces.
int run_torch_program(CLI::App& app, int argc, char** argv);

}  // namespace qna::cli
