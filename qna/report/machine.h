// What a measurement ran on. Never the machine's name.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <utility>
#include <vector>

namespace qna::report {

struct Machine {
  std::string cpu;           // "unknown CPU" where the system does not say
  int cores = 0;             // that this process may use, hyper-threads counted; 0: unknown
  int64_t memory_bytes = 0;  // 0: unknown
  std::string system;        // distribution, kernel and architecture
  std::string compiler;      // that built this library
};

Machine this_machine();

// For TrainingReport::machine: label, value.
std::vector<std::pair<std::string, std::string>> describe(const Machine& machine);

// "AMD EPYC, 2 cores"
std::string machine_description();

// The parts that read text: the first "model name" of /proc/cpuinfo, and a value of
// /etc/os-release, such as PRETTY_NAME. Empty where there is none.
std::string cpu_name(std::istream& cpuinfo);
std::string os_release_value(std::istream& os_release, const std::string& key);

}  // namespace qna::report
