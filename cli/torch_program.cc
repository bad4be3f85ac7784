#include "cli/torch_program.h"

#include <c10/util/Exception.h>
#include <malloc.h>

#include "cli/verbs_of_kind.h"

namespace qna::cli {
namespace {

std::string describe(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  return torchs == nullptr ? describe_error(error) : torchs->what_without_backtrace();
}

}  // namespace

int run_torch_program(Program& program, int argc, char** argv) {
#ifdef __GLIBC__
  // Maps come and go with every layer. By default malloc gives large ones back to the system, which
  // then clears them page by page each time: some percent of a network's time.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  return program.run(argc, argv, describe);
}

}  // namespace qna::cli
