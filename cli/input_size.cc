#include "cli/input_size.h"

#include <algorithm>

#include "cli/model_argument.h"
#include "qna/base/error.h"
#include "qna/data/preprocess.h"

namespace qna::cli {

using image::Image;

int64_t InputSize::least_side() const {
  // Cutting shrinks the image less than to the longer side.
  return exact[0] > 0 ? std::max(exact[0], exact[1]) : preprocess.resize;
}

InputSize input_size(const std::string& text, const engine::Model& model) {
  InputSize size{.preprocess = model.info().preprocess};
  size.preprocess.crop = {0, 0};
  if (text.empty()) {
    if (model.kind() == engine::Kind::kDetector) return size;
    // Fine-tuned networks may know larger images than those that they were made for.
    const std::array<int64_t, 2>& crop = model.info().preprocess.crop;
    const std::array<int64_t, 2>& trained = crop[0] > 0 ? crop : model.classifier().image_size;
    size.preprocess.resize = std::min(trained[0], trained[1]);
    return size;
  }
  const std::array<int64_t, 2> sides = parse_size(text, "--size");
  if (text.find('x') != std::string::npos) {
    size.exact = sides;
  } else {
    set_shorter_side(size.preprocess, sides[0]);
  }
  return size;
}

void set_shorter_side(config::Preprocess& preprocess, int64_t size) {
  if (preprocess.resize > 0) preprocess.longest = preprocess.longest * size / preprocess.resize;
  preprocess.resize = size;
}

Image fit(const Image& image, const InputSize& size, const std::string& path) {
  const bool exact = size.exact[0] > 0;
  constexpr int64_t kMaxPixels = int64_t{1} << 26;  // of a network's input; some gigabytes of maps
  const auto [height, width] =
      exact ? size.exact : data::output_size({image.height, image.width}, size.preprocess);
  check(height * width <= kMaxPixels,
        "{}: at this size it has {} x {} pixels, the most are {}; give a smaller --size", path,
        height, width, kMaxPixels);
  return exact ? cut_to(image, size.exact, size.preprocess.filter)
               : data::fit(image, size.preprocess);
}

Image cut_to(const Image& image, std::array<int64_t, 2> size, image::Filter filter) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  const double scale =
      std::min(height / static_cast<double>(size[0]), width / static_cast<double>(size[1]));
  const double top = (height - scale * static_cast<double>(size[0])) / 2;
  const double left = (width - scale * static_cast<double>(size[1])) / 2;
  return image::resize(image, size[0], size[1], filter,
                       image::Box{left, top, width - left, height - top});
}

}  // namespace qna::cli
