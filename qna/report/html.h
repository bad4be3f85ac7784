// Pages that need nothing but themselves: no fonts, no images, no scripts from elsewhere. What is
// made here is well-formed XML as well, so that a test can read it strictly.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qna/image/image.h"

namespace qna::report {

// Text that shows as itself between tags and in quoted attributes, whoever wrote it: & < > " ' as
// entities; bytes that are not UTF-8, and control characters that XML forbids, as U+FFFD.
std::string escape(std::string_view text);

// Of RFC 4648, with padding.
std::string base64(std::string_view bytes);

// The image with at most so many pixels at its longer side.
image::Image shrunk(const image::Image& image, int64_t side);

// Such an image is shown larger than it is, and its pixels are worth seeing: class="small".
bool is_small(const image::Image& image);

// data:image/png;base64,...
std::string png_data_uri(const image::Image& image);

// <img> with the image inside. alt: what is said where it cannot be seen; escaped here.
std::string image_tag(const image::Image& image, std::string_view alt);

// A card with a heading; `body` is HTML.
std::string card(std::string_view heading, std::string_view body);

// Labels and values; kind: "numbers" for large ones in boxes, "facts" for lines.
std::string description_list(const char* kind,
                             const std::vector<std::pair<std::string, std::string>>& pairs);
// A program on a page, with its style. The style may hold no < or &, the code no ]]>.
struct Script {
  std::string_view style = {}, code = {};
  std::string_view sha256 = {};  // of the code, 64 hexadecimal digits
};

// The whole page around `body`, which is HTML. Light or dark as the reader's system is, one column
// on a phone, and on paper without backgrounds. No other script than the given one can run on it.
std::string page(std::string_view title, std::string_view body, const Script& script = {});

}  // namespace qna::report
