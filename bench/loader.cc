#include "bench/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>

#include "bench/peer.h"
#include "qna/base/error.h"
#include "qna/data/image_stream.h"
#include "qna/data/preprocess.h"
#include "qna/image/read.h"

namespace qna::bench {
namespace {

class Loader {
 public:
  explicit Loader(const LoaderBenchOptions& options)
      : augment_(loader_augment(options.size)), pixels_(options.size * options.size * 3) {
    const std::vector<std::string> found = data::find_images({options.folder});
    const int64_t size = static_cast<int64_t>(found.size());
    const int64_t count = std::min(options.count, size);
    for (int64_t i = 0; i < count; ++i) paths_.push_back(found[i * size / count]);
  }

  double seconds(int64_t images) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < images; ++i) next();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  int64_t count() const { return static_cast<int64_t>(paths_.size()); }

 private:
  void next() {
    Random random(1, 0, position_, kAugment);
    const image::Image image = image::read_image(paths_[position_ % paths_.size()]);
    ++position_;
    data::to_floats(data::augment(image, augment_, random), preprocess_, pixels_.data());
  }

  const data::Augment augment_;
  const config::Preprocess preprocess_;  // mean and std
  std::vector<std::string> paths_;
  std::vector<float> pixels_;
  size_t position_ = 0;
};

struct LoaderSubject {
  std::string name;
  std::string version;
  std::function<double(int64_t)> seconds;  // for that many images
  int64_t turn = 0;                        // images
  std::vector<double> speeds = {};
};

}  // namespace

std::vector<LoaderResult> run_loader_bench(const LoaderBenchOptions& options) {
  check(options.size >= 1 && options.size <= 4096,
        "bench loader: size must be in [1, 4096], got {}", options.size);
  check(options.count >= 1 && options.rounds >= 1,
        "bench loader: count and rounds must be at least 1, got {} and {}", options.count,
        options.rounds);
  Loader loader(options);
  std::vector<LoaderSubject> subjects;
  subjects.push_back({"qna", "", [&](int64_t images) { return loader.seconds(images); }});
  std::unique_ptr<Peer> peer;
  if (!options.peer_command.empty()) {
    std::vector<std::string> command = options.peer_command;
    command.insert(command.end(),
                   {"--folder", options.folder, "--size", std::to_string(options.size), "--count",
                    std::to_string(options.count)});
    peer = std::make_unique<Peer>(command);
    subjects.push_back({"timm", peer->version(),
                        [&](int64_t images) { return peer->seconds(static_cast<int>(images)); }});
  }
  // Once through all files, so that they are in memory; then a turn is about half a second, of
  // whole rounds through the files, because images differ.
  for (LoaderSubject& subject : subjects) {
    const double once = subject.seconds(loader.count());
    subject.turn = loader.count() * std::max<int64_t>(1, std::lround(0.5 / std::max(once, 1e-3)));
  }
  for (int round = 0; round < options.rounds; ++round)
    for (LoaderSubject& subject : subjects) {
      const double seconds = subject.seconds(subject.turn);
      subject.speeds.push_back(static_cast<double>(subject.turn) / seconds);
    }
  std::vector<LoaderResult> results;
  for (LoaderSubject& subject : subjects) {
    std::sort(subject.speeds.begin(), subject.speeds.end());
    results.push_back({subject.name, subject.speeds[subject.speeds.size() / 2],
                       subject.speeds.front(), subject.speeds.back(), subject.version});
  }
  return results;
}

std::string loader_table(const std::vector<LoaderResult>& results) {
  std::string out =
      fmt::format("{:<8} {:>12} {:>17} {:>8}\n", "subject", "images/s", "range", "speed");
  for (const LoaderResult& result : results) {
    out += fmt::format(
        "{:<8} {:>12.1f} {:>17} {:>7.2f}x  {}\n", result.subject, result.images_per_second,
        fmt::format("{:.1f}-{:.1f}", result.slowest, result.fastest),
        results.front().images_per_second / result.images_per_second, result.version);
  }
  return out;
}

std::string loader_csv(const std::vector<LoaderResult>& results, const LoaderBenchOptions& options,
                       const std::string& machine, const std::string& commit) {
  std::string out =
      "subject,image,count,images_per_second,slowest,fastest,machine,commit,version\n";
  for (const LoaderResult& result : results) {
    out += fmt::format("{},{},{},{:.2f},{:.2f},{:.2f},\"{}\",{},\"{}\"\n", result.subject,
                       options.size, options.count, result.images_per_second, result.slowest,
                       result.fastest, machine, commit, result.version);
  }
  return out;
}

}  // namespace qna::bench
