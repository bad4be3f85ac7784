#include "bench/study/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "bench/study/fit.h"

namespace qna::bench::study {
namespace {

using Names = std::vector<std::string>;

const Names kHalo = {"halo", "py-halo", "py-halo-compiled"};
const Names kConv = {"conv", "py-conv"};

double time_of(const Row& row) { return row.min_ms; }
double memory_of(const Row& row) { return static_cast<double>(row.extra_bytes); }

// The lowest cost of any of these subjects, by window.
std::map<int64_t, double> best(const Rows& rows, std::string_view pass, const Names& names,
                               const Cost& cost) {
  std::map<int64_t, double> found;
  for (const Row& row : sweep_rows(rows, Sweep::kKernel, pass)) {
    if (!row.measured() || std::count(names.begin(), names.end(), row.subject) == 0) continue;
    double& lowest =
        found.try_emplace(row.shape.kernel, std::numeric_limits<double>::max()).first->second;
    lowest = std::min(lowest, cost(row));
  }
  return found;
}

// How many times more others cost than one of ours, over the windows at which both were measured.
struct Ratios {
  std::map<int64_t, double> by_kernel;

  Ratios(const Rows& rows, std::string_view pass, const Names& others, const std::string& ours,
         const Cost& cost, int64_t first = 0, int64_t last = 1000) {
    const auto own = best(rows, pass, {ours}, cost);
    for (const auto& [kernel, value] : best(rows, pass, others, cost)) {
      const auto found = own.find(kernel);
      const bool wanted = kernel >= first && kernel <= last;
      if (wanted && found != own.end()) by_kernel[kernel] = value / std::max(found->second, 1.0e-9);
    }
  }
  double lowest() const {
    double value = INFINITY;
    for (const auto& [kernel, ratio] : by_kernel) value = std::min(value, ratio);
    return value;
  }
  double highest() const {
    double value = 0;
    for (const auto& [kernel, ratio] : by_kernel) value = std::max(value, ratio);
    return value;
  }
  std::string text() const {
    if (by_kernel.empty()) return "-";
    const auto one = [](const auto& item) {
      return fmt::format("{:.{}f}x (k = {})", item.second, item.second < 99.5 ? 1 : 0, item.first);
    };
    if (by_kernel.size() == 1) return one(*by_kernel.begin());
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    return one(*std::min_element(by_kernel.begin(), by_kernel.end(), less)) + " to " +
           one(*std::max_element(by_kernel.begin(), by_kernel.end(), less));
  }
};

Claim at_least(std::string text, std::string claimed, double limit, const Ratios& ratios) {
  Claim claim{std::move(text), std::move(claimed), ratios.text()};
  if (!ratios.by_kernel.empty()) claim.holds = ratios.lowest() >= limit;
  return claim;
}

Claim at_most(std::string text, std::string claimed, double limit, double measured) {
  Claim claim{std::move(text), std::move(claimed),
              std::isnan(measured) ? "-" : fmt::format("{:.2f}", measured)};
  if (!std::isnan(measured)) claim.holds = measured <= limit;
  return claim;
}

double growth_of(const Rows& rows, Sweep sweep, const std::string& subject, const Cost& cost) {
  return growth(sweep_rows(rows, sweep, kForward), sweep, subject, cost);
}

void add_halo(std::vector<Claim>& list, const Rows& rows) {
  const Ratios time(rows, kForward, kHalo, "qna", time_of);
  const Ratios memory(rows, kForward, kHalo, "qna", memory_of);
  list.push_back(at_least("forward time of HaloNet / QnA", "paper: at least 5x", 5, time));
  list.push_back(
      at_least("extra memory of HaloNet / QnA, forward", "paper: at least 3x", 3, memory));
  Claim large{"the same at large windows", "paper: up to 10x", memory.text()};
  if (!memory.by_kernel.empty()) large.holds = memory.highest() >= 10;
  list.push_back(large);
  list.push_back(at_least("the same at every window", "goal: at least 10x", 10, memory));
  list.push_back(at_least("forward time of HaloNet / QnA by the paper's algorithm, both in PyTorch",
                          "paper: at least 5x", 5,
                          {rows, kForward, {"py-halo"}, "qna-composite", time_of}));
  list.push_back(at_least("extra memory of HaloNet / QnA by the paper's algorithm, both in PyTorch",
                          "paper: at least 3x", 3,
                          {rows, kForward, {"py-halo"}, "qna-composite", memory_of}));
  list.push_back(at_least("training time of HaloNet / QnA", "goal: at least 5x", 5,
                          {rows, kTrain, kHalo, "qna", time_of}));
  list.push_back(at_least("extra memory of HaloNet / QnA, training", "goal: at least 10x", 10,
                          {rows, kTrain, kHalo, "qna", memory_of}));
}

void add_convolution(std::vector<Claim>& list, const Rows& rows) {
  const Ratios all(rows, kForward, kConv, "qna", time_of, 5);
  const int64_t largest = all.by_kernel.empty() ? 0 : all.by_kernel.rbegin()->first;
  list.push_back(at_least("forward time of convolution / QnA at a large window", "paper: 1.8x", 1.8,
                          {rows, kForward, kConv, "qna", time_of, largest}));
  list.push_back(at_least("the same from k = 5 up", "goal: above 1x", 1, all));
  list.push_back(at_least("training time of convolution / QnA from k = 5 up", "goal: above 1x", 1,
                          {rows, kTrain, kConv, "qna", time_of, 5}));
}

void add_sasa(std::vector<Claim>& list, const Rows& rows) {
  list.push_back(at_least("forward time of SASA by unfolding, compiled / fused",
                          "goal: at least 5x", 5,
                          {rows, kForward, {"py-sasa-compiled"}, "sasa", time_of, 7, 7}));
  list.push_back(at_least("training time of SASA by unfolding, compiled / fused",
                          "goal: at least 5x", 5,
                          {rows, kTrain, {"py-sasa-compiled"}, "sasa", time_of, 7, 7}));
  list.push_back(at_most("fused SASA: extra memory grows with the window k as k to the power",
                         "goal: 0, by unfolding 2", 0.2,
                         growth_of(rows, Sweep::kKernel, "sasa", memory_of)));
}

void add_growth(std::vector<Claim>& list, const Rows& rows) {
  list.push_back(at_most("QnA: time grows with the pixels to the power", "paper: 1", 1.1,
                         growth_of(rows, Sweep::kPixels, "qna", time_of)));
  list.push_back(at_most("QnA: time grows with the window k to the power", "paper: at most 2", 2,
                         growth_of(rows, Sweep::kKernel, "qna", time_of)));
  list.push_back(at_most("QnA: extra memory grows with the window k to the power", "paper: 0", 0.2,
                         growth_of(rows, Sweep::kKernel, "qna", memory_of)));
}

}  // namespace

std::vector<Claim> claims(const Rows& rows) {
  std::vector<Claim> list;
  add_halo(list, rows);
  add_convolution(list, rows);
  add_sasa(list, rows);
  add_growth(list, rows);
  return list;
}

}  // namespace qna::bench::study
