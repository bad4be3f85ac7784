#include "qna/viz/contact_sheet.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qna/base/error.h"
#include "qna/viz/draw.h"
#include "qna/viz/text.h"

namespace qna::viz {
namespace {

constexpr Color kPaper = {255, 255, 255};
constexpr Color kInk = {24, 24, 24};
constexpr int64_t kMargin = 12;                // around the sheet and between places
constexpr int64_t kCaption = kTextHeight + 2;  // a caption and a gap below
constexpr double kAspect = 1.5;                // of a sheet whose columns are ours to choose

// The columns whose sheet is nearest to kAspect and has the fewest empty places.
int64_t choose_columns(int64_t count, int64_t place_height, int64_t place_width) {
  int64_t best = 1;
  double best_cost = std::numeric_limits<double>::infinity();
  for (int64_t rows = 1; rows <= count; ++rows) {
    const int64_t columns = (count + rows - 1) / rows;
    const double aspect =
        static_cast<double>(columns * place_width) / static_cast<double>(rows * place_height);
    const double empty = 1 - static_cast<double>(count) / static_cast<double>(rows * columns);
    const double cost = std::abs(std::log(aspect / kAspect)) + empty;
    if (columns * (rows - 1) < count && cost < best_cost) {
      best = columns;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace

image::Image contact_sheet(std::span<const Captioned> images, const SheetOptions& options) {
  check(!images.empty(), "contact_sheet: there must be at least one picture, got none");
  check(options.columns >= 0, "contact_sheet: columns must be at least 1 (or 0: chosen), got {}",
        options.columns);
  int64_t height = 0, width = 0;
  for (const Captioned& item : images) {
    check_image(item.image, "contact_sheet");
    height = std::max(height, item.image.height);
    width = std::max(width, item.image.width);
  }
  const int64_t place_height = kCaption + height + kMargin;
  const int64_t place_width = width + kMargin;
  const auto count = static_cast<int64_t>(images.size());
  const int64_t columns = options.columns > 0 ? std::min(options.columns, count)
                                              : choose_columns(count, place_height, place_width);
  const int64_t rows = (count + columns - 1) / columns;

  const auto lines = static_cast<int64_t>(options.title.size());
  const int64_t top = kMargin + (lines > 0 ? lines * kTextHeight + kMargin : 0);
  image::Image sheet = blank(top + rows * place_height, kMargin + columns * place_width, kPaper);
  check_image(sheet, "contact_sheet");
  for (int64_t i = 0; i < lines; ++i) {
    draw_text(sheet, kMargin + i * kTextHeight, kMargin,
              shorten(options.title[i], sheet.width - 2 * kMargin), kInk);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t y = top + i / columns * place_height;
    const int64_t x = kMargin + i % columns * place_width;
    draw_text(sheet, y, x, shorten(images[i].caption, width), kInk);
    paste(sheet, images[i].image, y + kCaption, x);
  }
  return sheet;
}

}  // namespace qna::viz
