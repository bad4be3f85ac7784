// Which files of a folder or an archive are taken for images.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace qna::data {

// Ends in .jpg, .jpeg, .png or .webp, in small or capital letters.
bool has_image_ending(std::string_view name);

// .git, .DS_Store and the ._name.jpg that macOS adds to archives are no part of a data set.
inline bool is_hidden(std::string_view name) { return name.starts_with('.'); }

// Files that lie among the images but are not read, for people to be told of. Hidden ones do not
// count.
class LeftOut {
 public:
  void add(const std::string& path);
  // "5 files are left out: 3 GIF and 1 TIFF, which cannot be read, such as a/b.gif; and 1 of
  // another kind, such as notes.txt"; empty: there are none.
  std::string line() const;

 private:
  struct Kind {
    int64_t count = 0;
    std::string example;
  };
  std::map<std::string, Kind> pictures_;  // by the name of the format
  Kind others_;
};

}  // namespace qna::data
