#include "cli/explore.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/image_loop.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/image/read.h"

namespace qna::cli {
namespace {

using image::Image;

// The part of the image that the network sees, in as many pixels as the page shows.
Image shown_part(const Image& image, const InputSize& size) {
  if (size.exact[0] == 0) return image;
  const auto longer = static_cast<double>(std::max(size.exact[0], size.exact[1]));
  const double larger = std::max(1.0, static_cast<double>(report::kExplorerSide) / longer);
  const auto side = [&](int64_t pixels) {
    return static_cast<int64_t>(larger * static_cast<double>(pixels));
  };
  return cut_to(image, {side(size.exact[0]), side(size.exact[1])}, size.preprocess.filter);
}

}  // namespace

void write_explorer(const engine::Model& model, const std::vector<std::string>& images,
                    const std::string& out, const InputSize& size,
                    const kinds::ExploreOptions& options, int threads) {
  const std::vector<std::string> paths = find_pictures(images);
  check(paths.size() == 1,
        "--explore makes a page of one picture, got {}; give one, or leave --explore away to draw "
        "all of them",
        paths.size());
  const std::string& path = paths.front();
  check_writable(out);
  const auto [height, width] = image::read_image_size(path);
  const int64_t least = std::max(size.least_side(), report::kExplorerSide);
  const Image image =
      image::read_image(path, {.channels = size.preprocess.channels(), .min_side = least});
  engine::Context context(threads);
  report::Explorer explorer =
      kinds::explore(model, std::filesystem::path(path).filename().string(),
                     shown_part(image, size), fit(image, size, path), options, context);
  if (std::max(height, width) > report::kExplorerSide) {
    explorer.notes.push_back(
        fmt::format("The picture has {} x {} pixels and is shown with {} at its longer side.",
                    height, width, report::kExplorerSide));
  }
  write_file(out, report::explorer_page(explorer));
  fmt::print("{}\n", out);
}

}  // namespace qna::cli
