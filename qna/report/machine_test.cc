#include "qna/report/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>
#include <thread>

namespace qna::report {
namespace {

TEST(Machine, CpuName) {
  std::istringstream intel(
      "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some(R) CPU: 2 @ 3 GHz\nmodel name\t: b\n");
  EXPECT_EQ(cpu_name(intel), "Some(R) CPU: 2 @ 3 GHz");
  std::istringstream arm("processor\t: 0\nBogoMIPS\t: 50.00\nmodel name\n");
  EXPECT_EQ(cpu_name(arm), "");
}

TEST(Machine, OsRelease) {
  const std::string text =
      "NAME=\"Some Linux\"\nPRETTY_NAME=\"Some Linux 12 (x)\"\nID=some\nA='b'\nB=\"\nC=\n";
  const auto value = [&](const std::string& key) {
    std::istringstream file(text);
    return os_release_value(file, key);
  };
  EXPECT_EQ(value("PRETTY_NAME"), "Some Linux 12 (x)");
  EXPECT_EQ(value("ID"), "some");
  EXPECT_EQ(value("A"), "b");
  EXPECT_EQ(value("B"), "\"");
  EXPECT_EQ(value("C"), "");
  EXPECT_EQ(value("VERSION"), "");
}

TEST(Machine, ThisOne) {
  const Machine machine = this_machine();
  EXPECT_NE(machine.cpu, "");
  EXPECT_EQ(machine.cores, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_GT(machine.memory_bytes, int64_t{1} << 26);
  EXPECT_NE(machine.system.find("Linux"), std::string::npos);
  EXPECT_NE(machine.compiler.find('.'), std::string::npos);
  EXPECT_EQ(machine_description(), machine.cpu + ", " + std::to_string(machine.cores) + " cores");
}

TEST(Machine, DescriptionLeavesOutWhatIsUnknown) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(describe({"a", 4, int64_t{3} << 29, "b", "c"}), (Pairs{{"CPU", "a"},
                                                                   {"Cores", "4"},
                                                                   {"Memory", "1.5 GiB"},
                                                                   {"System", "b"},
                                                                   {"Compiler", "c"}}));
  EXPECT_EQ(describe({"a", 0, 0, "b", "c"}),
            (Pairs{{"CPU", "a"}, {"System", "b"}, {"Compiler", "c"}}));
}

}  // namespace
}  // namespace qna::report
