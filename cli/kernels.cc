#include <fmt/format.h>

#include <cstdio>

#include "cli/verbs.h"
#include "qna/kernels/implementation.h"

namespace qna::cli {

void add_kernels(Command program) {
  Command verb = program.verb("kernels", "List the kernel implementations");
  verb.footer(
      "Set QNA_KERNEL=NAME to force one.\n\n"
      "Example:\n"
      "  QNA_KERNEL=sse4 qna kernels");
  verb.callback([] {
    const kernels::Implementation& chosen = kernels::chosen_implementation();
    fmt::print("{:<11} {:<46} {:>6}  {:<10} {}\n", "name", "description", "lanes", "supported",
               "chosen");
    for (const kernels::Implementation& implementation : kernels::implementations()) {
      fmt::print("{:<11} {:<46} {:>6}  {:<10} {}\n", implementation.name,
                 implementation.description, implementation.lanes,
                 implementation.supported ? "yes" : "no", &implementation == &chosen ? "*" : "");
    }
  });
}

}  // namespace qna::cli
