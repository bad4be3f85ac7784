// `qna bench guard`: whether something has become slow. A dozen cases, each beside a plain matrix
// product in the same rounds: their ratio is compared with the one that was kept, since times alone
// differ from hour to hour.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace qna::bench {

struct GuardOptions {
  int threads = 2;
  int rounds = 15;
};

struct GuardResult {
  std::string name;
  double ms;     // minimum of the rounds
  double speed;  // time of the plain product divided by it
};

std::vector<GuardResult> run_guard_bench(const GuardOptions& options);

// The key of a row: its case, the kernels and the threads that ran.
std::string guard_key(const std::string& name, const GuardOptions& options);
// Speeds by key. The comparison names what has less than this part of the speed that was kept.
using GuardRows = std::map<std::string, double>;
inline constexpr double kGuardLeast = 0.85;

GuardRows guard_rows(const std::string& csv, const std::string& path);
std::string guard_csv(const GuardRows& rows);

}  // namespace qna::bench
