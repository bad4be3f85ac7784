// How the rows of a batch are cut into chunks that one worker takes at a time. The cut does not
// depend on the number of workers, so that sums by chunks do not either.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qna::kernels {

struct RowChunk {
  int64_t first;
  int64_t rows;
  int64_t position;  // of its first row among the live rows of its group
  bool live;         // whether the rows take part
};

// Chunks in groups: of the live rows of a group, at most `most_group_rows`, something is kept until
// all of them are done.
struct RowChunks {
  struct Group {
    int64_t begin, end;  // chunks
    int64_t live_rows;
  };

  // drop_factor: one factor for each drop_rows rows, 0 means that they take no part; null: all do.
  // Chunks have at most `chunk_rows` rows; all but the last of a run a multiple of `tile`. Groups
  // hold multiples of `group_unit` live rows, so up to that many more than `most_group_rows`.
  RowChunks(int64_t rows, const float* drop_factor, int64_t drop_rows, int64_t chunk_rows,
            int64_t most_group_rows, int64_t tile, int64_t group_unit) {
    int64_t live_rows = 0;
    for_each_run(rows, drop_factor, drop_rows, [&](int64_t begin, int64_t end, bool live) {
      if (live) live_rows += end - begin;
    });
    const int64_t group_count = std::max<int64_t>(1, (live_rows - 1) / most_group_rows + 1);
    const int64_t group_rows = up((live_rows - 1) / group_count + 1, group_unit);
    groups.push_back({0, 0, 0});
    for_each_run(rows, drop_factor, drop_rows, [&](int64_t begin, int64_t end, bool live) {
      while (begin < end) {
        if (live && groups.back().live_rows == group_rows) {
          groups.push_back({count(), count(), 0});
        }
        Group& group = groups.back();
        const int64_t run =
            live ? std::min(end - begin, group_rows - group.live_rows) : end - begin;
        const int64_t pieces = (run - 1) / chunk_rows + 1;
        const int64_t tiles = (run - 1) / tile + 1;
        for (int64_t i = 0; i < pieces; ++i) {
          const int64_t from = i * tiles / pieces * tile;
          const int64_t to = std::min(run, (i + 1) * tiles / pieces * tile);
          if (to <= from) continue;
          chunks.push_back({begin + from, to - from, group.live_rows, live});
          if (live) group.live_rows += to - from;
          largest = std::max(largest, to - from);
        }
        begin += run;
        group.end = count();
      }
    });
    for (const Group& group : groups) most_live = std::max(most_live, group.live_rows);
  }

  int64_t count() const { return static_cast<int64_t>(chunks.size()); }

  std::vector<RowChunk> chunks;
  std::vector<Group> groups;  // at least one
  int64_t largest = 0;        // rows of a chunk
  int64_t most_live = 0;      // rows of a group

 private:
  static int64_t up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

  // Runs of samples that take part, or do not.
  template <typename Use>
  static void for_each_run(int64_t rows, const float* drop_factor, int64_t drop_rows,
                           const Use& use) {
    if (drop_factor == nullptr) drop_rows = std::max<int64_t>(rows, 1);
    const auto live = [&](int64_t row) {
      return drop_factor == nullptr || drop_factor[row / drop_rows] != 0;
    };
    for (int64_t begin = 0; begin < rows;) {
      int64_t end = begin + drop_rows;
      while (end < rows && live(end) == live(begin)) end += drop_rows;
      use(begin, std::min(end, rows), live(begin));
      begin = end;
    }
  }
};

}  // namespace qna::kernels
