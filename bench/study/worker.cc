#include "bench/study/worker.h"

#include <c10/util/Exception.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/study/runner.h"
#include "qna/base/error.h"

namespace qna::bench::study {
namespace {

using nlohmann::json;

class Worker {
 public:
  Worker(const std::string& subject, int threads)
      : kind_(find_subject(subject)), runner_(make_local_runner(kind_)) {
    check(kind_.make != nullptr, "{} is no subject of this program", subject);
    set_up_process(threads);
  }

  json answer(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    if (word == "case") return prepare(json::parse(line.substr(space + 1)));
    if (word == "release") return release();
    check(word == "run" && problem_ != nullptr, "unknown request '{}'", line);
    double seconds = 0;
    const int times = space == std::string::npos ? 1 : std::stoi(line.substr(space + 1));
    for (int i = 0; i < times; ++i) seconds += runner_->seconds();
    return {{"seconds", seconds}};
  }

 private:
  json prepare(const json& request) {
    release();
    const Case shape{request.at("kernel"), request.at("height"), request.at("dim")};
    Row row;
    row.pass = request.at("pass");
    problem_ = std::make_unique<Problem>(shape, row.pass == kTrain, std::set{kind_.family});
    runner_->prepare(*problem_, "", row);
    // NaN, where there is nothing to compare with, is written as null.
    return {{"case", true},
            {"max_difference", row.difference},
            {"peak_bytes", row.peak_bytes},
            {"wanted_bytes", row.peak_bytes - row.extra_bytes},
            {"memory", row.memory},
            {"version", row.version}};
  }

  json release() {
    runner_->release();
    problem_ = nullptr;
    return {{"released", true}};
  }

  const SubjectKind& kind_;
  std::unique_ptr<Problem> problem_;
  const std::unique_ptr<Runner> runner_;
};

}  // namespace

int run_worker(const std::string& subject, int threads) {
  const auto say = [](const json& answer) { std::cout << answer.dump() << std::endl; };
  try {
    Worker worker(subject, threads);
    say({{"ready", true}, {"subject", subject}});
    for (std::string line; std::getline(std::cin, line) && line != "quit";) {
      say(worker.answer(line));
    }
    return 0;
  } catch (const c10::Error& error) {
    say({{"error", error.what_without_backtrace()}});
  } catch (const std::exception& error) {
    say({{"error", error.what()}});
  }
  return 1;
}

}  // namespace qna::bench::study
