// What the programs with LibTorch, qna-train and qna-bench, have in common.
#pragma once

#include "cli/command.h"

namespace qna::cli {

// As Program::run(), with malloc set for LibTorch's maps and its errors without their backtraces.
int run_torch_program(Program& program, int argc, char** argv);

}  // namespace qna::cli
