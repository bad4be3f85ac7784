// The verbs of the program qna-bench. Each adds itself to the program.
#pragma once

#include "cli/command.h"

namespace qna::cli {

void add_bench_detect(Command program);
void add_bench_guard(Command program);
void add_bench_layer(Command program);
void add_bench_loader(Command program);
void add_bench_model(Command program);
void add_bench_product(Command program);
void add_bench_upsample(Command program);

// Not for people: what the benchmarks start for each subject of this program.
void add_bench_workers(Command program);

}  // namespace qna::cli
