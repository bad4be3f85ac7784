// The cost study's part of `qna bench layer`.
#pragma once

#include <string>
#include <vector>

#include "bench/study/run.h"
#include "cli/command.h"

namespace qna::cli {

struct StudyArguments {
  bool study = false;
  bool resume = false;
  std::string from;  // a CSV: nothing is measured
  std::string figures;
  std::string csv;
  bool quick = false;
  bench::study::StudyOptions options;
};

// Adds the options; `alien` are those of `verb` that mean nothing to the study.
void add_study(Command verb, StudyArguments& a, const std::vector<Option>& alien);

void run_study(StudyArguments& a);

// Not for people: what the study starts for each subject of this program.
void add_study_worker(Command program);

}  // namespace qna::cli
