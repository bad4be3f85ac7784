// What all subjects of one case and pass share.
#pragma once

#include <torch/types.h>

#include <map>
#include <set>
#include <string>

#include "bench/study/subjects.h"

namespace qna::bench::study {

class Problem {
 public:
  // Makes the answers of these families.
  Problem(const Case& shape, bool train, const std::set<std::string>& families);

  // For subjects in other processes: input, gradient of the output, and of each of these families
  // "<name>.answer" and the parameters as "<name>.<parameter>".
  void write(const std::string& path, const std::set<std::string>& families) const;

  // The largest difference from the family's answer as a part of its largest number; NaN if there
  // is none. Throws qna::Error if it is too large, or the shape is wrong.
  double difference(const at::Tensor& answer, const std::string& family) const;

  const Case shape;
  const bool train;
  at::Tensor x;         // [1, side, side, dim]
  at::Tensor gradient;  // of the output

 private:
  struct Family {
    Layer layer;
    at::Tensor answer;
  };
  std::map<std::string, Family> families_;
};

}  // namespace qna::bench::study
