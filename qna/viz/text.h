// Short labels in one small font.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "qna/image/image.h"
#include "qna/viz/palette.h"

namespace qna::viz {

inline constexpr int64_t kGlyphWidth = 6;  // a blank column at the right included
inline constexpr int64_t kTextHeight = 13;

// Pixels from the first letter to the last. Letters beyond ASCII are drawn, and count, as one '?'.
int64_t text_width(std::string_view text);

// The top left corner of the text is (top, left); what lies outside the image is cut off.
void draw_text(image::Image& image, int64_t top, int64_t left, std::string_view text, Color color);

// The text, with ".." in its middle if it would be wider: names differ at their beginning and end.
std::string shorten(std::string_view text, int64_t width);

}  // namespace qna::viz
