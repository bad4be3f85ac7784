#include "cli/image_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "qna/base/error.h"
#include "qna/image/read.h"

namespace qna::cli {
namespace {

// No more than there are images: a thread for nothing costs time and memory too.
int reading_threads(int wanted, size_t images) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return static_cast<int>(
      std::min<size_t>(wanted == 0 ? cores : wanted, std::max<size_t>(1, images)));
}

constexpr const char* kStandardInput = "-";

image::Image fit_standard_input(const config::Preprocess& preprocess) {
  constexpr size_t kMost = size_t{1} << 30;  // as of a file
  std::vector<uint8_t> bytes;
  uint8_t part[1 << 16];
  for (size_t count = 0; (count = std::fread(part, 1, sizeof(part), stdin)) > 0;) {
    bytes.insert(bytes.end(), part, part + count);
    check(bytes.size() <= kMost, "standard input: a picture must have at most {} bytes", kMost);
  }
  const image::Image image = image::decode_image(
      bytes, "standard input", {.channels = preprocess.channels(), .min_side = preprocess.resize});
  return data::fit(image, preprocess);
}

}  // namespace

std::vector<std::string> find_pictures(const std::vector<std::string>& paths, bool standard_input) {
  data::LeftOut left_out;
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (standard_input && path == kStandardInput) {
      found.push_back(path);
      continue;
    }
    const std::vector<std::string> here = data::find_images({path}, &left_out);
    found.insert(found.end(), here.begin(), here.end());
  }
  if (!left_out.line().empty()) fmt::print(stderr, "note: {}\n", left_out.line());
  return found;
}

int64_t for_each_image(
    const std::vector<std::string>& paths, const data::ReadFile& read,
    const std::function<void(size_t i, const image::Image& image, Progress& progress)>& work,
    int threads) {
  constexpr size_t kAhead = 4;  // an image may be large
  data::ImageStream stream(paths, read, reading_threads(threads, paths.size()), kAhead);
  int64_t failed = 0;
  Progress progress(static_cast<int64_t>(paths.size()));
  const auto tell = [&](const std::string& message) {
    progress.wipe();
    fmt::print(stderr, "qna: {}\n", message);
    ++failed;
  };
  while (std::optional<data::StreamedImage> image = stream.next()) {
    progress.show(static_cast<int64_t>(image->index), paths[image->index]);
    if (!image->error.empty()) {
      tell(image->error);
      continue;
    }
    try {
      work(image->index, image->image, progress);
    } catch (const Error& error) {
      tell(error.what());
    }
  }
  progress.wipe();
  return failed;
}

int64_t for_each_batch(const std::vector<std::string>& paths, const config::Preprocess& preprocess,
                       const BatchOptions& options,
                       const std::function<void(const ImageBatch&)>& run,
                       const std::function<void(const std::string&, const std::string&)>& report) {
  data::ImageStream stream(
      paths,
      [&](const std::string& path) {
        return path == kStandardInput ? fit_standard_input(preprocess)
                                      : data::read_fitted(path, preprocess);
      },
      reading_threads(options.threads, paths.size()), static_cast<size_t>(3 * options.batch));
  Progress progress(static_cast<int64_t>(paths.size()));
  ImageBatch batch;
  std::vector<float> pixels;  // of the batch
  int64_t done = 0;
  int64_t failed = 0;
  const auto flush = [&] {
    if (batch.paths.empty()) return;
    batch.images.batch = static_cast<int64_t>(batch.paths.size());
    batch.images.pixels = pixels.data();
    run(batch);
    done += batch.images.batch;
    batch.paths.clear();
    pixels.clear();
    progress.show(done, "pictures");
  };
  while (std::optional<data::StreamedImage> next = stream.next()) {
    const image::Image& image = next->image;
    const bool fits = image.height == batch.images.height && image.width == batch.images.width;
    if (!next->error.empty() || !fits) flush();
    if (!next->error.empty()) {
      report(paths[next->index], next->error);
      ++failed;
      ++done;
      continue;
    }
    batch.images.height = image.height;
    batch.images.width = image.width;
    batch.paths.push_back(paths[next->index]);
    pixels.resize(pixels.size() + image.pixels.size());
    data::to_floats(image, preprocess, pixels.data() + pixels.size() - image.pixels.size());
    if (static_cast<int64_t>(batch.paths.size()) == options.batch) flush();
  }
  flush();
  return failed;
}

void check_all_used(int64_t failed, const std::vector<std::string>& paths) {
  check(failed == 0, "{} of {} pictures could not be used", failed, paths.size());
}

}  // namespace qna::cli
