// Verbs that do the same with many images: worker threads read ahead while the network computes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "qna/data/image_stream.h"
#include "qna/engine/model.h"

namespace qna::cli {

// The images among files and folders, as data::find_images; files in folders that are not read are
// told on stderr. "-", where it is allowed, stands for standard input.
std::vector<std::string> find_pictures(const std::vector<std::string>& paths,
                                       bool standard_input = false);

// Calls work(i, image, progress) for each image in order, with a bar; wipe it before printing. An
// image whose reading or work throws qna::Error is reported and does not stop the rest. Returns how
// many did. threads: that read; 0: one per core.
int64_t for_each_image(
    const std::vector<std::string>& paths, const data::ReadFile& read,
    const std::function<void(size_t i, const image::Image& image, Progress& progress)>& work,
    int threads = 0);

struct ImageBatch {
  std::vector<std::string> paths;
  engine::Images images;  // as many as paths; valid during the call
};

struct BatchOptions {
  int64_t batch = 8;
  int threads = 0;  // that read; 0: one per core
};

// Calls `run` for batches of images of one size, in order; a path "-" is standard input. An image
// that cannot be read goes to `report(path, message)` and does not stop the rest. Returns how many
// could not be read.
int64_t for_each_batch(const std::vector<std::string>& paths, const config::Preprocess& preprocess,
                       const BatchOptions& options,
                       const std::function<void(const ImageBatch&)>& run,
                       const std::function<void(const std::string&, const std::string&)>& report);

// To be called at the end: throws qna::Error if images failed.
void check_all_used(int64_t failed, const std::vector<std::string>& paths);

}  // namespace qna::cli
