// A subject of this program as a process of its own, by the protocol of bench/peers/README.md.
#pragma once

#include <string>

namespace qna::bench::study {

// Answers requests on stdin until its end. Returns the exit status.
int run_worker(const std::string& subject, int threads);

}  // namespace qna::bench::study
