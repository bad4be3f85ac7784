#include "qna/data/image_stream.h"

#include <algorithm>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/data/image_name.h"
#include "qna/image/read.h"

namespace qna::data {

image::Image read_fitted(const std::string& path, const Preprocess& preprocess) {
  // A large JPEG is decoded smaller where that is exact enough; see image::ReadOptions.
  return fit(
      image::read_image(path, {.channels = preprocess.channels(), .min_side = preprocess.resize}),
      preprocess);
}

ImageStream::ImageStream(std::vector<std::string> paths, ReadFile read, int threads, size_t ahead)
    : paths_(std::move(paths)), read_(std::move(read)), ahead_(std::max<size_t>(1, ahead)) {
  for (int i = 0; i < std::max(1, threads); ++i) workers_.emplace_back([this] { work(); });
}

ImageStream::~ImageStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

StreamedImage ImageStream::read(size_t index) const {
  StreamedImage out{.index = index};
  try {
    out.image = read_(paths_[index]);
  } catch (const Error& error) {
    out.error = error.what();
  } catch (const std::bad_alloc&) {
    out.error = paths_[index] + ": not enough memory for this picture";
  } catch (const std::exception& error) {
    out.error = paths_[index] + ": " + error.what();
  }
  return out;
}

void ImageStream::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [&] { return stopping_ || started_ == paths_.size() || started_ < taken_ + ahead_; });
    if (stopping_ || started_ == paths_.size()) return;
    const size_t index = started_++;
    lock.unlock();
    StreamedImage image = read(index);
    lock.lock();
    ready_.emplace(index, std::move(image));
    changed_.notify_all();
  }
}

std::optional<StreamedImage> ImageStream::next() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (taken_ == paths_.size()) return std::nullopt;
  changed_.wait(lock, [&] { return ready_.contains(taken_); });
  StreamedImage image = std::move(ready_.extract(taken_).mapped());
  ++taken_;
  changed_.notify_all();
  return image;
}

std::vector<std::string> find_images(const std::vector<std::string>& paths, LeftOut* left_out) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      check(fs::exists(path, error), "{}: there is no such file or folder{}", path,
            did_you_mean_file(path));
      found.push_back(path);
      continue;
    }
    const size_t before = found.size();
    LeftOut others;
    fs::recursive_directory_iterator walk(path, fs::directory_options::skip_permission_denied,
                                          error);
    for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
      std::error_code ignored;
      if (!walk->is_regular_file(ignored)) continue;
      if (has_image_ending(walk->path().filename().string())) {
        found.push_back(walk->path().string());
      } else {
        others.add(walk->path().string());
        if (left_out != nullptr) left_out->add(walk->path().string());
      }
    }
    check(!error, "{}: cannot be read: {}", path, error.message());
    if (found.size() == before) {
      const std::string line = others.line();
      fail("{}: there is no .jpg, .jpeg, .png or .webp file in this folder{}{}", path,
           line.empty() ? "" : "; ", line);
    }
    std::sort(found.begin() + static_cast<int64_t>(before), found.end());
  }
  return found;
}

}  // namespace qna::data
