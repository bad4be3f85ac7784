// Runs a model over many pictures: worker threads decode while the model computes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qna/data/preprocess.h"
#include "qna/engine/model.h"

namespace qna::cli {

struct ImageBatch {
  std::vector<std::string> paths;
  engine::Images images;  // as many as paths; valid during the call
};

struct BatchOptions {
  int64_t batch = 8;
  int threads = 0;  // that decode; 0: one per core
};

// Calls `run` for batches of pictures of one size, in order. A picture that cannot be read goes to
// `report(path, message)` and does not stop the rest. Returns how many could not be read.
int64_t for_each_batch(const std::vector<std::string>& paths, const config::Preprocess& preprocess,
                       const BatchOptions& options,
                       const std::function<void(const ImageBatch&)>& run,
                       const std::function<void(const std::string&, const std::string&)>& report);

}  // namespace qna::cli
