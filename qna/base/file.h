// Files that are whole or absent.
#pragma once

#include <string>
#include <string_view>

namespace qna {

// Writes to a temporary name beside `path`, flushes to disk and renames. Throws qna::Error that
// says what failed; `path` then is as it was before.
void write_file(const std::string& path, std::string_view content);

}  // namespace qna
