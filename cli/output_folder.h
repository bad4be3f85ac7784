// Where a verb that writes many files puts them.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace qna::cli {

// The folder of --out, made if need be.
void make_output_folder(const std::string& path);

// Stops if a PNG file in the folder `out` would take the place of one of the pictures.
void check_keeps_pictures(const std::string& out, const std::vector<std::string>& pictures);

// Names for the files of many pictures.
class UniqueStems {
 public:
  // "photos/cat.jpg" -> "cat"; "cat-2" if another picture had that name.
  std::string of(const std::string& path);

 private:
  std::set<std::string> taken_;
};

}  // namespace qna::cli
