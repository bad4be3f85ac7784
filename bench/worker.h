// Our own model as a subject of the model benchmark.
#pragma once

#include "bench/serve.h"

namespace qna::bench {

// Answers on stdout until stdin ends.
void run_worker(const WorkerOptions& options);

}  // namespace qna::bench
