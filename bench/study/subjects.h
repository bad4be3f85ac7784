// Who takes part in the cost study: a table, one line each.
#pragma once

#include <torch/types.h>

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/study/row.h"

namespace qna::bench::study {

// A layer that is made: [1, side, side, dim] -> the same.
struct Layer {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
};

struct SubjectKind {
  std::string name;
  std::string title;
  // Subjects of one family compute the same from the same parameters. The first of them in the
  // table gives the answer that the others must give.
  std::string family;
  // In this process, with the same parameters at every call; or null.
  Layer (*make)(const Case&);
  // Otherwise a subject of bench/peers/layer_worker.py.
  std::string peer;
};

std::span<const SubjectKind> all_subjects();

// Throws qna::Error if there is none of that name.
const SubjectKind& find_subject(const std::string& name);

// The first of a family; null if none of them is made in this process.
const SubjectKind* first_of(const std::string& family);

}  // namespace qna::bench::study
