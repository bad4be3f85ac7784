#include "cli/image_batches.h"

#include <algorithm>
#include <thread>

#include "cli/progress.h"
#include "qna/data/image_stream.h"

namespace qna::cli {
namespace {

// No more than there are pictures: a thread for nothing costs time and memory too.
int decoding_threads(const BatchOptions& options, size_t pictures) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int wanted = options.threads == 0 ? cores : options.threads;
  return static_cast<int>(std::min<size_t>(wanted, std::max<size_t>(1, pictures)));
}

}  // namespace

int64_t for_each_batch(const std::vector<std::string>& paths, const config::Preprocess& preprocess,
                       const BatchOptions& options,
                       const std::function<void(const ImageBatch&)>& run,
                       const std::function<void(const std::string&, const std::string&)>& report) {
  data::ImageStream stream(paths, preprocess, decoding_threads(options, paths.size()),
                           static_cast<size_t>(3 * options.batch));
  Progress progress(static_cast<int64_t>(paths.size()));
  std::vector<data::PreparedImage> held;
  std::vector<float> together;  // of those
  int64_t done = 0;
  int64_t failed = 0;
  const auto flush = [&] {
    if (held.empty()) return;
    ImageBatch batch;
    together.clear();
    for (const data::PreparedImage& image : held) {
      if (held.size() > 1) {
        together.insert(together.end(), image.pixels.begin(), image.pixels.end());
      }
      batch.paths.push_back(paths[image.index]);
    }
    batch.images = {.batch = static_cast<int64_t>(held.size()),
                    .height = held.front().height,
                    .width = held.front().width,
                    .pixels = held.size() > 1 ? together.data() : held.front().pixels.data()};
    run(batch);
    done += static_cast<int64_t>(held.size());
    held.clear();
    progress.show(done, "pictures");
  };
  while (std::optional<data::PreparedImage> image = stream.next()) {
    const bool fits = held.empty() ||
                      (image->height == held.front().height && image->width == held.front().width);
    if (!image->error.empty() || !fits) flush();
    if (!image->error.empty()) {
      report(paths[image->index], image->error);
      ++failed;
      ++done;
      continue;
    }
    held.push_back(std::move(*image));
    if (static_cast<int64_t>(held.size()) == options.batch) flush();
  }
  flush();
  return failed;
}

}  // namespace qna::cli
