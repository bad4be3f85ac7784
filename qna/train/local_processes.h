// Processes on this machine that train one model, started by the first of them.
#pragma once

#include <functional>

#include "qna/train/processes.h"

namespace qna::train {

// Runs `work` in `count` processes at once: in this one, as the first, and in children that are
// forked here, so no thread may have been started before. Returns when all have ended. Where some
// fail, throws what they say. Children end with their parent.
void run_local_processes(int count, const std::function<void(const Rank&)>& work);

}  // namespace qna::train
