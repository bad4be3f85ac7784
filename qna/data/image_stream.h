// Pictures from files, ready for a model, in the order asked for: worker threads read ahead.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "qna/data/preprocess.h"

namespace qna::data {

struct PreparedImage {
  size_t index;  // of the file
  int64_t height = 0;
  int64_t width = 0;
  std::vector<float> pixels = {};  // [height, width, channels]
  std::string error = {};          // why there are none; empty if there are
};

class ImageStream {
 public:
  // At most `ahead` pictures are held that were not yet taken.
  ImageStream(std::vector<std::string> paths, const Preprocess& preprocess, int threads,
              size_t ahead);
  ~ImageStream();
  ImageStream(const ImageStream&) = delete;
  ImageStream& operator=(const ImageStream&) = delete;

  // The next picture, nothing after the last.
  std::optional<PreparedImage> next();

 private:
  void work();
  PreparedImage prepare(size_t index) const;

  const std::vector<std::string> paths_;
  const Preprocess preprocess_;
  const size_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, PreparedImage> ready_;
  size_t started_ = 0;  // files that some worker has taken
  size_t taken_ = 0;    // pictures that next() has given out
  bool stopping_ = false;
  std::vector<std::jthread> workers_;
};

// The pictures among files and folders: a file as it is, a folder's files that end in .jpg, .jpeg
// or .png, with all folders below, in order of their names. Throws qna::Error for what does not
// exist and for a folder without pictures.
std::vector<std::string> find_images(const std::vector<std::string>& paths);

}  // namespace qna::data
