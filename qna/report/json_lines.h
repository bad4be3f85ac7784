// An append-only log: one JSON object per line.
//
// Lines end in a newline. After a killed run the last line may lack it: it counts if it is a whole
// object all the same, otherwise it is half-written and is ignored. Anything else that is not one
// object per line, an empty line too, is an error that names the file and the line.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "qna/report/append_file.h"

namespace qna::report {

class JsonLines {
 public:
  // Goes on after the lines that are there; a half-written last one is removed.
  explicit JsonLines(const std::string& path);

  // With the operating system when this returns. JSON has no NaN and no infinity: they become null.
  // Bytes that are not UTF-8 become U+FFFD.
  void append(const nlohmann::json& object);

 private:
  AppendFile file_;
};

std::vector<nlohmann::json> read_json_lines(const std::string& path);

// For a run that is resumed from an older checkpoint: removes the lines whose number under `key` is
// above `step`, and the half-written last one; the others keep their bytes. A line without `key`
// goes where the line before it goes. The file is whole at any time; a missing one stays missing.
// Returns how many lines were removed, not counting the half-written one.
int64_t truncate_json_lines(const std::string& path, const std::string& key, int64_t step);

}  // namespace qna::report
