// Pictures that cannot be used, told apart from mistakes that concern all pictures.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "qna/base/error.h"

namespace qna::data {

class BrokenPicture : public Error {
 public:
  using Error::Error;
};

// The result of `make`, which reads or changes a picture of the data set. What goes wrong is a
// BrokenPicture whose message has the picture's name.
template <typename Dataset, typename Make>
auto guarded(const Dataset& dataset, int64_t picture, Make&& make) {
  try {
    return std::forward<Make>(make)();
  } catch (const Error& error) {
    const std::string name = dataset.name(picture);
    const std::string message = error.what();
    throw BrokenPicture(message.find(name) == std::string::npos ? name + ": " + message : message);
  } catch (const std::bad_alloc&) {
    throw BrokenPicture(dataset.name(picture) + ": not enough memory for this picture");
  }
}

}  // namespace qna::data
