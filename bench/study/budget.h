// Which runs are not worth their time, or do not fit into memory.
#pragma once

#include <string>

#include "bench/study/row.h"

namespace qna::bench::study {

struct Budget {
  double seconds = 5;  // of one run
  int64_t bytes = int64_t{12} << 30;
};

// Why a subject should not run this case, told from its smaller cases: from the last two that
// differ from it in one respect only, continued as a power of it, or as its square where there is
// one. Empty: it may run.
std::string over_budget(const Rows& rows, const std::string& subject, std::string_view pass,
                        const Case& shape, const Budget& budget);

}  // namespace qna::bench::study
