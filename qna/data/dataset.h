// Labelled images on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "qna/image/image.h"

namespace qna::data {

// Reading is safe from many threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int64_t label(int64_t index) const = 0;     // of the class
  virtual std::string name(int64_t index) const = 0;  // such as its path, for messages
  // Throws qna::Error that names the image where it is broken.
  virtual image::Image read(int64_t index, int64_t channels) const = 0;
  virtual const std::vector<std::string>& classes() const = 0;  // names, in order of the labels
  // What people should be told of files that lie among the images but are none that can be read;
  // empty: nothing.
  virtual std::string left_out() const { return {}; }
};

// A number of 16 hexadecimal digits that tells whether two data sets hold images of the same labels
// and file names, wherever they lie.
std::string fingerprint(const Dataset& dataset);

}  // namespace qna::data
