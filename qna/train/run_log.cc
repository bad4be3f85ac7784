#include "qna/train/run_log.h"

#include <filesystem>

#include "qna/report/comparison.h"

namespace qna::train {

// Enough for smooth curves; a line per step would be most of a short run's time.
constexpr int64_t kStepsPerLine = 20;

std::string RunLog::path(const std::string& folder) { return report::run_log_path(folder); }

RunLog::RunLog(const std::string& folder, int64_t resumed_at) {
  if (resumed_at >= 0) {
    report::truncate_json_lines(path(folder), "step", resumed_at);
    events_ = std::make_unique<report::EventFile>(folder, resumed_at + 1);
  } else {
    std::filesystem::remove(path(folder));
    events_ = std::make_unique<report::EventFile>(folder);
  }
  lines_ = std::make_unique<report::JsonLines>(path(folder));
}

void RunLog::step(const StepInfo& info, bool last) {
  if (info.step % kStepsPerLine != 0 && !last && !info.skipped) return;
  lines_->append({{"kind", "step"},
                  {"step", info.step},
                  {"epoch", info.epoch + 1},
                  {"loss", info.loss},
                  {"lr", info.lr},
                  {"gradient_norm", info.gradient_norm},
                  {"images_per_second", info.images_per_second},
                  {"skipped", info.skipped}});
  events_->scalar("train/loss", info.step, info.loss);
  events_->scalar("train/lr", info.step, info.lr);
  events_->scalar("train/gradient_norm", info.step, info.gradient_norm);
  events_->scalar("train/images_per_second", info.step, info.images_per_second);
}

void RunLog::epoch(const EpochInfo& info, int64_t step) {
  nlohmann::json line = {{"kind", "epoch"},         {"step", step},
                         {"epoch", info.epoch + 1}, {"train_loss", info.train_loss},
                         {"seconds", info.seconds}, {"best", info.best}};
  events_->scalar("epoch/train_loss", step, info.train_loss);
  for (const auto& [name, value] : info.metrics) {
    line["metrics"][name] = value;
    events_->scalar("val/" + name, step, value);
  }
  lines_->append(line);
}

}  // namespace qna::train
