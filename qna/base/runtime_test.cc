#include "qna/base/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace qna {
namespace {

TEST(ThreadRuntime, EveryIndexOnceByAWorkerInRange) {
  for (const int workers : {1, 2, 3, 8})
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      ThreadRuntime runtime(workers);
      EXPECT_EQ(runtime.workers(), workers);
      std::vector<std::atomic<int>> seen(count);
      std::atomic<bool> in_range{true};
      runtime.for_each(count, [&](int64_t index, int worker) {
        if (index < 0 || index >= count || worker < 0 || worker >= workers) {
          in_range = false;
        } else {
          ++seen[index];
        }
      });
      EXPECT_TRUE(in_range);
      for (const auto& times : seen) ASSERT_EQ(times, 1);
    }
}

// Scratch is split by worker, so two tasks must never have the same one at a time.
TEST(ThreadRuntime, AWorkerDoesOneTaskAtATime) {
  constexpr int kWorkers = 4;
  ThreadRuntime runtime(kWorkers);
  std::atomic<int> busy[kWorkers] = {};
  std::atomic<bool> overlap{false};
  runtime.for_each(500, [&](int64_t, int worker) {
    if (busy[worker]++ != 0) overlap = true;
    std::this_thread::yield();
    --busy[worker];
  });
  EXPECT_FALSE(overlap);
}

// All is done, and can be read, when for_each returns.
TEST(ThreadRuntime, ReturnsWhenAllIsDone) {
  ThreadRuntime runtime(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> squares(100, -1);
    runtime.for_each(100, [&](int64_t index, int) { squares[index] = index * index; });
    for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(squares[i], i * i);
  }
}

TEST(ThreadRuntime, OneWorkerIsTheCallingThread) {
  ThreadRuntime runtime;
  EXPECT_EQ(runtime.workers(), 1);
  std::set<std::thread::id> threads;
  runtime.for_each(10, [&](int64_t, int) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(ThreadRuntime, FewerThanOneWorkerMeansOne) {
  EXPECT_EQ(ThreadRuntime(0).workers(), 1);
  EXPECT_EQ(ThreadRuntime(-5).workers(), 1);
}

TEST(ThreadRuntime, ScratchIsAlignedAndLargeEnough) {
  ThreadRuntime runtime(2);
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4097}, size_t{1} << 20}) {
    void* memory = runtime.scratch(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kScratchAlignment, 0u);
    std::memset(memory, 0x5a, bytes);  // a sanitizer sees what is missing
  }
}

}  // namespace
}  // namespace qna
