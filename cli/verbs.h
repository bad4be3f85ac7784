// The verbs of the command line. Each adds itself to the program; its callback does the work and
// throws on failure.
#pragma once

namespace CLI {
class App;
}

namespace qna::cli {

void add_kernels(CLI::App& app);
void add_bench(CLI::App& app);

}  // namespace qna::cli
