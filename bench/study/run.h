// `qna bench layer --study`: what local attention costs, by QnA and by what came before it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/study/budget.h"
#include "bench/study/runner.h"

namespace qna::bench::study {

// Three sweeps: over the window at the paper's 256 x 256 x 64, over the map at k = 7, and over the
// features at k = 7 on 64 x 64. In each the smaller cases come first, so that they can tell what
// the larger ones would cost.
std::vector<Case> full_plan();
// The same in about a tenth of the time: on smaller maps, and without those that are compiled for
// every case.
std::vector<Case> quick_plan();
std::vector<std::string> quick_subjects();

struct StudyOptions {
  std::vector<Case> cases = full_plan();
  std::vector<std::string> passes = {std::string(kForward), std::string(kTrain)};
  std::vector<std::string> subjects;  // names of the table; empty: all
  int rounds = 5;
  Budget budget = {};
  PeerSettings peers = {};
  Rows known = {};  // of an earlier run: their cases are not measured again
  // Called after every case with all rows so far.
  std::function<void(const Rows&)> save = [](const Rows&) {};
};

// The known rows and the new ones. A subject that fails in a case has a row that says so.
Rows run_study(const StudyOptions& options);

// How often a subject runs after its first timed run, if that took so long: a slow one fewer times,
// down to not at all.
struct Turns {
  int rounds;
  int repeats;  // in a round
};
Turns turns_for(double seconds, int rounds);

}  // namespace qna::bench::study
