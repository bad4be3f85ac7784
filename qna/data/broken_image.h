// Images that cannot be used, told apart from mistakes that concern all images.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "qna/base/error.h"

namespace qna::data {

class BrokenImage : public Error {
 public:
  using Error::Error;
};

// The result of `make`, which reads or changes an image of the data set. What goes wrong is a
// BrokenImage whose message has the image's name.
template <typename Dataset, typename Make>
auto guarded(const Dataset& dataset, int64_t index, Make&& make) {
  try {
    return std::forward<Make>(make)();
  } catch (const Error& error) {
    const std::string name = dataset.name(index);
    const std::string message = error.what();
    throw BrokenImage(message.find(name) == std::string::npos ? name + ": " + message : message);
  } catch (const std::bad_alloc&) {
    throw BrokenImage(dataset.name(index) + ": not enough memory for this picture");
  }
}

}  // namespace qna::data
