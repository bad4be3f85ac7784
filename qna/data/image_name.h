// Which files of a folder or an archive are taken for images.
#pragma once

#include <algorithm>
#include <cctype>
#include <string_view>

namespace qna::data {

// Ends in .jpg, .jpeg or .png, in small or capital letters.
inline bool has_image_ending(std::string_view name) {
  for (const std::string_view ending : {".jpg", ".jpeg", ".png"}) {
    if (name.size() <= ending.size()) continue;
    const std::string_view tail = name.substr(name.size() - ending.size());
    if (std::equal(tail.begin(), tail.end(), ending.begin(),
                   [](unsigned char a, char b) { return std::tolower(a) == b; })) {
      return true;
    }
  }
  return false;
}

// .git, .DS_Store and the ._name.jpg that macOS adds to archives are no part of a data set.
inline bool is_hidden(std::string_view name) { return name.starts_with('.'); }

}  // namespace qna::data
