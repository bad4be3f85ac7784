// Images of class folders: what folders on disk and in archives have in common.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "qna/data/image_name.h"

namespace qna::data {

// The names of the classes in order of their labels. `given` empty: those of the folders, sorted
// by their bytes. Otherwise `given`, and each folder must be among them; a class without a folder
// is no mistake then, for a validation set may lack it. Errors begin with `where`.
std::vector<std::string> class_list(const std::set<std::string>& folders,
                                    std::vector<std::string> given, const std::string& where);

// The given names must be there and differ.
void check_class_names(const std::vector<std::string>& names, const std::string& where);

// The error for a place without class folders, which says what is expected instead.
[[noreturn]] void fail_without_classes(const std::string& where, bool has_images);

// The error for a class folder without images.
[[noreturn]] void fail_empty_class(const std::string& where, const std::string& name,
                                   const LeftOut& left_out);

}  // namespace qna::data
