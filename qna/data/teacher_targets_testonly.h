// A small file of a teacher's targets, as tests want it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qna/base/half.h"
#include "qna/format/safetensors.h"

namespace qna::data::testing {

// Two pictures of 9 x 10 pixels with two views each, three classes and two features, unless a test
// changes it.
struct TeacherFile {
  std::string names = "a/one.png\nb/two.png";
  std::vector<int32_t> sizes = {9, 10, 9, 10};
  std::vector<int32_t> views = {0, 0, 9, 10, 0, 1, 2, 3, 4, 1, 2, 0, 5, 5, 1, 0, 4, 6, 6, 0};
  std::vector<float> logits = {1, 2, 3, 4, 5, 7, 0, 0, 1, 2, 0, 0};
  std::vector<float> features = {1, 0, 0, 1, 2, 2, -1, 3};
  nlohmann::json classes = {"a", "b", "c"};
  std::vector<int64_t> views_shape = {2, 2, 5};
  bool has_features = true;

  std::string bytes() const {
    const std::vector<Float16> logit_halves = halves(logits);
    const std::vector<Float16> feature_halves = halves(features);
    using format::DType;
    std::vector<format::TensorView> tensors = {
        view("names", DType::kU8, {static_cast<int64_t>(names.size())}, std::span(names)),
        view("sizes", DType::kI32, {static_cast<int64_t>(sizes.size()) / 2, 2}, std::span(sizes)),
        view("views", DType::kI32, views_shape, std::span(views)),
        view("logits", DType::kF16, {2, 2, static_cast<int64_t>(logits.size()) / 4},
             std::span(logit_halves))};
    if (has_features) {
      tensors.push_back(view("features", DType::kF16, {2, 2, 2}, std::span(feature_halves)));
    }
    return format::safetensors_bytes(tensors, {{"format", "1"}, {"classes", classes.dump()}},
                                     "TeacherFile");
  }

 private:
  static std::vector<Float16> halves(const std::vector<float>& numbers) {
    std::vector<Float16> out;
    for (const float number : numbers) out.push_back(from_float<Float16>(number));
    return out;
  }

  template <typename T, size_t n>
  static format::TensorView view(const char* name, format::DType dtype, std::vector<int64_t> shape,
                                 std::span<T, n> numbers) {
    return {name, dtype, std::move(shape), std::as_bytes(numbers)};
  }
};

}  // namespace qna::data::testing
