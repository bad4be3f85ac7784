// The verbs of the program qna-bench. Each adds itself to the program.
#pragma once

namespace CLI {
class App;
}

namespace qna::cli {

void add_bench_detect(CLI::App& verbs);
void add_bench_layer(CLI::App& verbs);
void add_bench_loader(CLI::App& verbs);
void add_bench_model(CLI::App& verbs);
void add_bench_upsample(CLI::App& verbs);

// Not for people: what the benchmarks start for each subject of this program.
void add_bench_workers(CLI::App& verbs);

}  // namespace qna::cli
