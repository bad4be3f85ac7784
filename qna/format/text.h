// Text from files nobody vouches for, and text about them.
#pragma once

#include <string>
#include <string_view>

namespace qna::format {

bool is_utf8(std::string_view text);

// Bytes that are not UTF-8 become U+FFFD.
std::string valid_utf8(std::string_view text);

// For messages: in quotes, cut when long, and bytes that are not printable ASCII as \xNN, so that
// a name from a file can neither flood a log nor steer a terminal.
std::string in_quotes(std::string_view text);

// For tables: control characters as '?', so that a name from a file cannot steer a terminal.
std::string printable(std::string text);

}  // namespace qna::format
