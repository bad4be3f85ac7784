// Tables as text, values parted by commas (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace qna::format {

// In quotes where a comma, a quote or a line's end would part it.
std::string csv_text(const std::string& text);

// Lines of values. Throws qna::Error that names `path` and the line where a quote is not closed, or
// a line has another number of values than the first.
std::vector<std::vector<std::string>> parse_csv(const std::string& text, const std::string& path);

}  // namespace qna::format
