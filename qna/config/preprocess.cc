#include "qna/config/preprocess.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "qna/base/error.h"
#include "qna/image/image.h"

namespace qna::config {
namespace {

using image::Filter;
using nlohmann::json;

struct FilterName {
  Filter filter;
  std::string_view name;
};
constexpr FilterName kFilters[] = {{Filter::kBilinear, "bilinear"}, {Filter::kBicubic, "bicubic"}};

// One value of the object, and its name for messages.
struct Field {
  [[noreturn]] void reject(std::string_view rule) const {
    fail("{}: {} must be {}, got {}", where, key, rule, value.dump());
  }

  void read(int64_t& out) const {
    // Numbers above int64_t are unsigned in nlohmann's library, and would wrap.
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    if (!fits) reject("an integer");
    out = value.get<int64_t>();
  }

  void read(std::array<int64_t, 2>& out) const {
    if (!value.is_array() || value.size() != 2) reject("an array of two integers");
    for (size_t i = 0; i < 2; ++i) Field{where, key, value[i]}.read(out[i]);
  }

  void read(std::vector<float>& out) const {
    const auto is_number = [](const json& cell) { return cell.is_number(); };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_number)) {
      reject("an array of numbers");
    }
    out = value.get<std::vector<float>>();
  }

  void read(Filter& out) const {
    for (const FilterName& row : kFilters) {
      if (value == row.name) {
        out = row.filter;
        return;
      }
    }
    reject("\"bilinear\" or \"bicubic\"");
  }

  const std::string& where;
  const std::string& key;
  const json& value;
};

// Floats are written with the digits that a float has: 0.485, not 0.48500001430511475.
json short_numbers(const std::vector<float>& numbers) {
  json out = json::array();
  for (const float number : numbers) out.push_back(std::stod(fmt::format("{}", number)));
  return out;
}

}  // namespace

void check_preprocess(const Preprocess& preprocess, const std::string& where) {
  const auto& [resize, longest, crop, filter, mean, std] = preprocess;
  qna::check(resize >= 0 && resize <= image::kMaxSide, "{}: resize must be in [0, {}], got {}",
             where, image::kMaxSide, resize);
  qna::check(longest >= 0 && longest <= image::kMaxSide, "{}: longest must be in [0, {}], got {}",
             where, image::kMaxSide, longest);
  qna::check(longest == 0 || resize > 0, "{}: longest must be 0 where resize is 0, got {}", where,
             longest);
  const bool none = crop[0] == 0 && crop[1] == 0;
  const bool sane =
      crop[0] >= 1 && crop[0] <= image::kMaxSide && crop[1] >= 1 && crop[1] <= image::kMaxSide;
  qna::check(none || sane, "{}: crop must be two numbers in [1, {}], or 0, 0 for none, got {}, {}",
             where, image::kMaxSide, crop[0], crop[1]);
  qna::check(filter == image::Filter::kBilinear || filter == image::Filter::kBicubic,
             "{}: filter must be one of Filter, got {}", where, static_cast<int>(filter));
  qna::check(mean.size() == 1 || mean.size() == 3, "{}: mean must have 1 or 3 numbers, got {}",
             where, mean.size());
  qna::check(std.size() == mean.size(), "{}: std must have as many numbers as mean, {}, got {}",
             where, mean.size(), std.size());
  for (const float m : mean) {
    qna::check(std::isfinite(m), "{}: mean must be finite, got {}", where, m);
  }
  for (const float s : std) {
    qna::check(std::isfinite(s) && s > 0, "{}: std must be finite and above 0, got {}", where, s);
  }
}

json to_json(const Preprocess& preprocess) {
  check_preprocess(preprocess, "to_json");
  const auto has = [&](const FilterName& row) { return row.filter == preprocess.filter; };
  json out = {{"resize", preprocess.resize},
              {"crop", preprocess.crop},
              {"filter", std::find_if(std::begin(kFilters), std::end(kFilters), has)->name},
              {"mean", short_numbers(preprocess.mean)},
              {"std", short_numbers(preprocess.std)}};
  if (preprocess.longest != 0) out["longest"] = preprocess.longest;
  return out;
}

Preprocess preprocess_from_json(const json& object, const std::string& where) {
  if (!object.is_object()) {
    fail("{}: preprocess must be an object, got {}", where, object.dump());
  }
  Preprocess result;
  for (const auto& [key, value] : object.items()) {
    const Field field{where, key, value};
    if (key == "resize") {
      field.read(result.resize);
    } else if (key == "longest") {
      field.read(result.longest);
    } else if (key == "crop") {
      field.read(result.crop);
    } else if (key == "filter") {
      field.read(result.filter);
    } else if (key == "mean") {
      field.read(result.mean);
    } else if (key == "std") {
      field.read(result.std);
    } else {
      fail("{}: unknown key '{}'; the keys are resize, longest, crop, filter, mean, std", where,
           key);
    }
  }
  check_preprocess(result, where);
  return result;
}

}  // namespace qna::config
