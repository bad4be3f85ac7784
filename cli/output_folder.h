// Where a verb that writes many files puts them.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace qna::cli {

// The folder of --out, made if need be.
void make_output_folder(const std::string& path);

// Stops if a PNG file in the folder `out` would take the place of one of the images.
void check_keeps_images(const std::string& out, const std::vector<std::string>& images);

// Names for the files of many images.
class UniqueStems {
 public:
  // "pictures/cat.jpg" -> "cat"; "cat-2" if another image had that name.
  std::string of(const std::string& path);

 private:
  std::set<std::string> taken_;
};

}  // namespace qna::cli
