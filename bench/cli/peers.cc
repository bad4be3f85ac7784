#include "bench/cli/peers.h"

#include <cstdlib>
#include <filesystem>

#include "qna/base/error.h"

namespace qna::cli {

void set_up_peers(const std::string& folder, const std::string& without) {
  const std::string setup = folder + "/setup";
  check(std::filesystem::exists(setup),
        "the peers are run from the sources, and {} is not there; use {}", setup, without);
  check(std::system(("'" + setup + "' >&2").c_str()) == 0,
        "the peers could not be set up (see above); {} measures without them", without);
}

}  // namespace qna::cli
