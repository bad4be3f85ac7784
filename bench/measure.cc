#include "bench/measure.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "qna/ops/torch_runtime.h"

namespace qna::bench {
namespace {

std::atomic<int64_t> current{0};
std::atomic<int64_t> peak{0};

// The size of a block stands in the cache line before it: raw_allocate() demands that a block's
// context is its address.
constexpr size_t kHeader = 64;

void release(void* data) {
  if (data == nullptr) return;
  char* start = static_cast<char*>(data) - kHeader;
  current -= *reinterpret_cast<const int64_t*>(start);
  c10::free_cpu(start);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    char* start = static_cast<char*>(c10::alloc_cpu(bytes + kHeader));
    *reinterpret_cast<int64_t*>(start) = static_cast<int64_t>(bytes);
    const int64_t now = current += static_cast<int64_t>(bytes);
    int64_t seen = peak.load();
    while (now > seen && !peak.compare_exchange_weak(seen, now)) {
    }
    void* data = start + kHeader;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

double milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

void count_allocations() {
  static const bool installed = [] {
    c10::SetCPUAllocator(new CountingAllocator, /*priority=*/100);
    return true;
  }();
  (void)installed;
}

int64_t allocated_bytes() { return current; }
int64_t peak_allocated_bytes() { return peak; }
int64_t start_peak() {
  ops::TorchRuntime::release_scratch();
  peak = current.load();
  return peak;
}

std::vector<Measurement> measure(const std::vector<Subject>& subjects, int rounds) {
  std::vector<Measurement> results(subjects.size());
  std::vector<std::vector<double>> times(subjects.size());
  std::vector<int> repeats(subjects.size());
  for (size_t i = 0; i < subjects.size(); ++i) {
    subjects[i].run();
    const int64_t before = start_peak();
    const double once = milliseconds(subjects[i].run);
    results[i].peak_bytes = peak_allocated_bytes() - before;
    repeats[i] = std::clamp(static_cast<int>(20.0 / std::max(once, 0.01)), 1, 20);
  }
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < subjects.size(); ++i)
      for (int repeat = 0; repeat < repeats[i]; ++repeat) {
        times[i].push_back(milliseconds(subjects[i].run));
      }
  for (size_t i = 0; i < subjects.size(); ++i) {
    std::vector<double>& t = times[i];
    std::sort(t.begin(), t.end());
    results[i].min_ms = t.front();
    results[i].median_ms = t[t.size() / 2];
    results[i].spread = (t[(t.size() - 1) * 9 / 10] - t.front()) / results[i].median_ms;
  }
  return results;
}

}  // namespace qna::bench
