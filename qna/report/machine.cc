#include "qna/report/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace qna::report {
namespace {

std::string system_name() {
  std::ifstream release("/etc/os-release");
  std::string system = os_release_value(release, "PRETTY_NAME");
  utsname kernel;
  if (::uname(&kernel) == 0) {
    system += fmt::format("{}{} {}, {}", system.empty() ? "" : ", ", kernel.sysname, kernel.release,
                          kernel.machine);
  }
  return system.empty() ? "unknown system" : system;
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown compiler";
#endif
}

int64_t memory_bytes() {
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? pages * page : 0;
}

}  // namespace

std::string cpu_name(std::istream& cpuinfo) {
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

std::string os_release_value(std::istream& os_release, const std::string& key) {
  for (std::string line; std::getline(os_release, line);) {
    if (!line.starts_with(key + "=")) continue;
    std::string value = line.substr(key.size() + 1);
    const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                        value.back() == value.front();
    return quoted ? value.substr(1, value.size() - 2) : value;
  }
  return "";
}

Machine this_machine() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string cpu = cpu_name(cpuinfo);
  return {.cpu = cpu.empty() ? "unknown CPU" : cpu,
          .cores = static_cast<int>(std::thread::hardware_concurrency()),
          .memory_bytes = memory_bytes(),
          .system = system_name(),
          .compiler = compiler_name()};
}

std::vector<std::pair<std::string, std::string>> describe(const Machine& machine) {
  std::vector<std::pair<std::string, std::string>> list = {{"CPU", machine.cpu}};
  if (machine.cores > 0) list.emplace_back("Cores", std::to_string(machine.cores));
  if (machine.memory_bytes > 0) {
    const double gib = static_cast<double>(machine.memory_bytes) / (1 << 30);
    list.emplace_back("Memory", fmt::format("{:.1f} GiB", gib));
  }
  list.emplace_back("System", machine.system);
  list.emplace_back("Compiler", machine.compiler);
  return list;
}

std::string machine_description() {
  const Machine machine = this_machine();
  return fmt::format("{}, {} cores", machine.cpu, machine.cores);
}

}  // namespace qna::report
