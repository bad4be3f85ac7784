#include "cli/image_batches.h"

#include <cstring>
#include <thread>

#include "qna/base/progress.h"
#include "qna/data/image_stream.h"

namespace qna::cli {

int64_t for_each_batch(const std::vector<std::string>& paths, const data::Preprocess& preprocess,
                       const BatchOptions& options,
                       const std::function<void(const ImageBatch&)>& run,
                       const std::function<void(const std::string&, const std::string&)>& report) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  data::ImageStream stream(paths, preprocess, options.threads == 0 ? cores : options.threads,
                           static_cast<size_t>(3 * options.batch));
  Progress progress(static_cast<int64_t>(paths.size()));
  std::vector<data::PreparedImage> held;
  int64_t done = 0;
  int64_t failed = 0;
  const auto flush = [&] {
    if (held.empty()) return;
    ImageBatch batch;
    const auto& first = held.front();
    batch.images = torch::empty(
        {static_cast<int64_t>(held.size()), first.height, first.width, preprocess.channels()});
    float* to = batch.images.data_ptr<float>();
    for (const data::PreparedImage& image : held) {
      std::memcpy(to, image.pixels.data(), image.pixels.size() * sizeof(float));
      to += image.pixels.size();
      batch.paths.push_back(paths[image.index]);
    }
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
