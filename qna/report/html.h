// Pages that need nothing but themselves: no scripts, no fonts, no images from elsewhere. What
// is made here is well-formed XML as well, so that a test can read it strictly.
#pragma once

#include <string>
#include <string_view>

#include "qna/image/image.h"

namespace qna::report {

// Text that shows as itself between tags and in quoted attributes, whoever wrote it: & < > " ' as
// entities; bytes that are not UTF-8, and control characters that XML forbids, as U+FFFD.
std::string escape(std::string_view text);

// Of RFC 4648, with padding.
std::string base64(std::string_view bytes);

// data:image/png;base64,...
std::string png_data_uri(const image::Image& image);

// <img> with the image inside. alt: what is said where it cannot be seen; escaped here.
std::string image_tag(const image::Image& image, std::string_view alt);

// A card with a heading; `body` is HTML.
std::string card(std::string_view heading, std::string_view body);

// The whole page around `body`, which is HTML. Light or dark as the reader's system is, one column
// on a phone, and on paper without backgrounds.
std::string page(std::string_view title, std::string_view body);

}  // namespace qna::report
