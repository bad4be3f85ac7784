// What the evaluations of all kinds share.
#pragma once

#include <algorithm>
#include <thread>

#include "qna/base/error.h"
#include "qna/data/loader_options.h"
#include "qna/kinds/kind.h"
#include "qna/predict/evaluate.h"

namespace qna::kinds {

inline data::LoaderOptions loader_options(const EvaluateOptions& o, int64_t usual_batch) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return {.batch = o.batch > 0 ? o.batch : usual_batch,
          .workers = o.workers > 0   ? o.workers
                     : o.threads > 0 ? o.threads
                                     : cores,
          .shuffle = false,
          .skip_broken = o.skip_broken,
          .cache_bytes = 0};
}

// Tells images where the evaluation counts batches. The watcher must outlive the result.
inline predict::EvaluationRun told_in_images(const EvaluateWatcher& watcher, int64_t batch,
                                             int64_t images) {
  watcher.images(0, images);  // the clock starts here
  return {.tell = [&watcher, batch, images](int64_t done, int64_t) {
    watcher.images(std::min(done * batch, images), images);
  }};
}

inline void check_no_objects(const engine::Model& model, const EvaluateOptions& o) {
  check(o.annotations.empty() && o.results.empty(),
        "{}: this is {}; 'annotations' and 'results' are for detectors", model.origin(),
        config::describe(model.kind()));
}

inline void check_all_images(const engine::Model& model, const EvaluateOptions& o) {
  check(o.last == 0, "{}: this is {}; 'last' is for auto-encoders", model.origin(),
        config::describe(model.kind()));
}

inline void check_no_shifts(const engine::Model& model, const EvaluateOptions& o) {
  check(o.shifts.empty(), "{}: this is {}; 'shift' is for classifiers", model.origin(),
        config::describe(model.kind()));
}

}  // namespace qna::kinds
