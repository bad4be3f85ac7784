#include "qna/data/class_folders.h"

#include "qna/base/error.h"

namespace qna::data {

void check_class_names(const std::vector<std::string>& names, const std::string& where) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    check(!name.empty(), "{}: class_names must not have an empty name", where);
    check(seen.insert(name).second, "{}: class_names must differ, got '{}' twice", where, name);
  }
}

std::vector<std::string> class_list(const std::set<std::string>& folders,
                                    std::vector<std::string> given, const std::string& where) {
  if (given.empty()) return {folders.begin(), folders.end()};
  check_class_names(given, where);
  const std::set<std::string> known(given.begin(), given.end());
  for (const std::string& folder : folders) {
    check(known.contains(folder), "{}: the folder '{}' is not among the {} class_names", where,
          folder, given.size());
  }
  return given;
}

void fail_without_classes(const std::string& where, bool has_images) {
  fail("{}: {}; a data set has one folder per class: <class>/<picture>.jpg", where,
       has_images ? "the pictures lie directly in it" : "there are no folders of pictures in it");
}

void fail_empty_class(const std::string& where, const std::string& name, const LeftOut& left_out) {
  const std::string others = left_out.line();
  fail(
      "{}: the class '{}' has no picture: there is no .jpg, .jpeg, .png or .webp file in its "
      "folder; "
      "fill the folder or remove it{}{}",
      where, name, others.empty() ? "" : "; ", others);
}

}  // namespace qna::data
