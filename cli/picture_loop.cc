#include "cli/picture_loop.h"

#include <fmt/format.h>

#include "qna/base/error.h"

namespace qna::cli {

int64_t for_each_picture(const std::vector<std::string>& paths,
                         const std::function<void(size_t i, Progress& progress)>& work) {
  int64_t failed = 0;
  Progress progress(static_cast<int64_t>(paths.size()));
  for (size_t i = 0; i < paths.size(); ++i) {
    progress.show(static_cast<int64_t>(i), paths[i]);
    try {
      work(i, progress);
    } catch (const Error& error) {
      progress.wipe();
      fmt::print(stderr, "qna: {}\n", error.what());
      ++failed;
    }
  }
  progress.wipe();
  return failed;
}

void check_all_used(int64_t failed, const std::vector<std::string>& paths) {
  check(failed == 0, "{} of {} pictures could not be used", failed, paths.size());
}

}  // namespace qna::cli
