// The weights of a file on their way into a model: nothing is copied before everything fits. For
// the files of this folder only.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "qna/checkpoint/model_file.h"
#include "qna/format/safetensors.h"

namespace qna::checkpoint {

class WeightCopy {
 public:
  // Both must outlive the copy.
  WeightCopy(const std::string& path, const format::SafetensorsFile& file);

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  enum class OtherRows { kRefuse, kKeepInitial };

  // The file's tensor `name` into `to`. Tables of relative positions of another size are resized;
  // where only the number of rows differs, as in a head of other classes, `to` may keep its initial
  // values instead. Throws qna::Error for any other difference.
  void add(const std::string& name, const torch::Tensor& to,
           OtherRows other_rows = OtherRows::kRefuse);

  // The rows of the file's tensor `name` in another order or number into `to`: row i is `rows[i]`
  // of the file, or, where that is kMeanRow, the mean of all but the last.
  static constexpr int64_t kMeanRow = -1;
  void add_rows(const std::string& name, const torch::Tensor& to, const std::vector<int64_t>& rows);

  void say(std::string line) { report_.push_back(std::move(line)); }

  // Says in the report that `name`, which the model has, was not in the file.
  void leave(const std::string& name);

  // Lets the copy pass by those tensors of the file whose names fit.
  void ignore(const std::function<bool(const std::string&)>& fits);

  // Copies. Throws qna::Error if the file has a tensor that was neither added nor ignored.
  LoadReport finish();

 private:
  const std::string& path_;
  const format::SafetensorsFile& file_;
  LoadReport report_;
  std::set<std::string> used_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies_;  // to, from
};

}  // namespace qna::checkpoint
