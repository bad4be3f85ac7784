// Many images from files, in the order asked for: worker threads read ahead.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "qna/data/image_name.h"
#include "qna/data/preprocess.h"

namespace qna::data {

struct StreamedImage {
  size_t index;  // of the file
  image::Image image = {};
  std::string error = {};  // why there is none; empty if there is
};

// What a worker does with a path; a qna::Error is that file's error.
using ReadFile = std::function<image::Image(const std::string& path)>;

// Reads, resizes and crops, as a model wants its images.
image::Image read_fitted(const std::string& path, const Preprocess& preprocess);

class ImageStream {
 public:
  // At most `ahead` images are held that were not yet taken.
  ImageStream(std::vector<std::string> paths, ReadFile read, int threads, size_t ahead);
  ~ImageStream();
  ImageStream(const ImageStream&) = delete;
  ImageStream& operator=(const ImageStream&) = delete;

  // The next image, nothing after the last.
  std::optional<StreamedImage> next();

 private:
  void work();
  StreamedImage read(size_t index) const;

  const std::vector<std::string> paths_;
  const ReadFile read_;
  const size_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, StreamedImage> ready_;
  size_t started_ = 0;  // files that some worker has taken
  size_t taken_ = 0;    // images that next() has given out
  bool stopping_ = false;
  std::vector<std::jthread> workers_;
};

// The images among files and folders: a file as it is, a folder's files that end in .jpg, .jpeg,
// .png or .webp, with all folders below, in order of their names; left_out: gets the others in
// folders. Throws qna::Error for what does not exist and for a folder without images.
std::vector<std::string> find_images(const std::vector<std::string>& paths,
                                     LeftOut* left_out = nullptr);

}  // namespace qna::data
