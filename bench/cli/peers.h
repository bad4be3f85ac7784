// The environment in which the benchmark's peers run.
#pragma once

#include <string>

namespace qna::cli {

// Sets up the peers of this folder of the sources; returns at once when all is there. Throws
// qna::Error if that fails; it then names the option by which one does `without` them.
void set_up_peers(const std::string& folder, const std::string& without = "--peer none");

}  // namespace qna::cli
