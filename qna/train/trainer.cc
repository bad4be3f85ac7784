#include "qna/train/trainer.h"

#include <ATen/autocast_mode.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/base/random.h"
#include "qna/checkpoint/model_file.h"
#include "qna/format/toml.h"
#include "qna/train/run_log.h"

namespace qna::train {
namespace {

namespace fs = std::filesystem;

class Autocast {
 public:
  explicit Autocast(Precision precision) : was_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, precision == Precision::kBFloat16);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, was_);
  }

 private:
  const bool was_;
};

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

class Trainer {
 public:
  Trainer(tasks::Task& task, const Recipe& recipe, const Processes& processes,
          const TrainOptions& options, const Watcher& watcher, const std::atomic<bool>& stop)
      : task_(task),
        recipe_(recipe),
        processes_(processes),
        options_(options),
        watcher_(watcher),
        stop_(stop),
        batches_(steps_of_epoch(recipe, task)),
        ema_(task.model(), recipe.ema, recipe.ema_warmup),
        optimizer_(
            task.model(), recipe.optimizer, &ema_,
            [&](const std::string& parameter) { return task.depth_of(parameter); },
            task.companion()) {
    const bool has_body = std::ranges::any_of(optimizer_.depths(), [](int64_t d) { return d > 0; });
    check(has_body || (recipe.freeze_epochs == 0 && recipe.optimizer.depth_decay == 1),
          "recipe: freeze_epochs and optimizer.depth_decay are for a network with a body that "
          "learns behind its head, which this one has not; leave them out");
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  TrainResult run() {
    open();
    while (!is_finished(state_, recipe_)) {
      if (!train_epoch()) return stopped();
      finish_epoch();
      if (!is_finished(state_, recipe_) && stopping()) return stopped();
    }
    // A run that was finished already: its report still wants what the last weights say.
    if (!evaluated_) evaluate();
    ema_.swap();
    task_.model().eval();
    return {true, state_};
  }

 private:
  std::string path(const char* name) const { return (fs::path(options_.folder) / name).string(); }

  TrainResult stopped() {
    report();
    return {false, state_};
  }

  // By the first process, with the weights that files have too.
  void report() {
    if (!options_.report || !processes_.is_first()) return;
    const double begin = now();
    ema_.swap();
    task_.model().eval();
    try {
      options_.report(state_, evaluated_);
    } catch (const Error& error) {
      watcher_.note(fmt::format("the report could not be written: {}", error.what()));
    }
    ema_.swap();
    last_report_ = now();
    report_seconds_ = last_report_ - begin;
  }

  void open() {
    bool free = true;
    if (processes_.is_first()) {
      std::error_code error;
      fs::create_directories(options_.folder, error);
      check(!error, "{}: cannot make the folder: {}", options_.folder, error.message());
      free = lock_.take(options_.folder);  // two runs do not write to one folder
    }
    processes_.barrier();  // the folder is there for all
    // What has not done a step yet, such as a run that failed in its first one, can be begun anew.
    const bool there = fs::exists(path("last.safetensors")) &&
                       (options_.resume || has_begun(path("last.safetensors")));
    torch::Tensor seen = torch::tensor({there ? 1.0 : 0.0, free ? 0.0 : 1.0}, torch::kDouble);
    processes_.sum(seen);
    check(seen[1].item<double>() == 0, "{}: another run is at work in this folder",
          options_.folder);
    check(seen[0].item<double>() == (there ? processes_.count() : 0),
          "{}: {} of {} processes see last.safetensors; all of them need the same folder",
          options_.folder, seen[0].item<double>(), processes_.count());
    check(options_.resume || !there,
          "{}: there is a run already; go on with it by --resume, or choose another folder",
          options_.folder);
    processes_.barrier();  // nobody looks after the first has written
    if (there) {
      state_ = load_run(path("last.safetensors"), task_, recipe_, optimizer_, ema_);
      watcher_.note(
          !is_finished(state_, recipe_)
              ? fmt::format("going on with epoch {}, step {}", state_.epoch + 1, state_.step + 1)
          : state_.epoch < recipe_.epochs
              ? fmt::format("the run is finished; --set patience=0 with --resume makes it longer")
              : fmt::format("the run is finished; --set epochs=N with --resume makes it longer"));
      if (state_.epochs_before < recipe_.epochs) {
        watcher_.note(fmt::format(
            "the run had {} epochs and now has {}: from here on the learning rate is that of a run "
            "of {} epochs",
            state_.epochs_before, recipe_.epochs, recipe_.epochs));
      }
    }
    std::vector<torch::Tensor> tensors;
    for (const auto& [name, tensor] : checkpoint::named_tensors(task_.model())) {
      tensors.push_back(tensor);
    }
    if (task_.companion() != nullptr) {
      for (const torch::Tensor& tensor : task_.companion()->parameters()) tensors.push_back(tensor);
    }
    processes_.broadcast(tensors);
    if (!processes_.is_first()) return;
    // A process may have been killed while it wrote one of the run's files.
    remove_leftovers(options_.folder);
    write_file(path("recipe.toml"), format::to_toml(to_json(with_absolute_paths(recipe_))));
    log_ = std::make_unique<RunLog>(options_.folder, there ? state_.step : -1);
    if (!there) {
      // At once, so that a full disk or a folder that is not ours shows now and not after an epoch.
      save("last.safetensors");
    }
  }

  // The same decision on all processes.
  bool stopping() const {
    torch::Tensor flag = torch::tensor({stop_.load() ? 1.0 : 0.0}, torch::kDouble);
    processes_.sum(flag);
    return flag.item<double>() > 0;
  }

  void save(const char* name) {
    if (processes_.is_first()) save_run(path(name), task_, recipe_, state_, optimizer_, ema_);
    last_save_ = now();
    last_save_step_ = state_.step;
  }

  // Those that learn in this epoch: all, or those of the head. The others get no gradient, so that
  // the backward pass ends above them.
  std::vector<torch::Tensor> learning_parameters() {
    const bool only_head = state_.epoch < recipe_.freeze_epochs;
    std::vector<torch::Tensor> learning;
    for (size_t i = 0; i < optimizer_.parameters().size(); ++i) {
      torch::Tensor parameter = optimizer_.parameters()[i];
      const bool learns = !only_head || optimizer_.depths()[i] == 0;
      parameter.requires_grad_(learns);
      if (learns) learning.push_back(parameter);
    }
    return learning;
  }

  // False: stopped on the way, and saved.
  bool train_epoch() {
    task_.model().train();
    // Anew for every epoch: it notes the order of gradients at every step, and would grow for ever.
    gradients_ = std::make_unique<GradientMean>(processes_, learning_parameters());
    task_.start(state_.epoch, state_.batch);
    last_save_ = now();
    last_save_step_ = state_.step;
    double before = now();
    for (; state_.batch < batches_;) {
      const bool stop = train_step();
      const double after = now();
      state_.seconds += after - before;
      before = after;
      ++state_.batch;
      ++state_.step;
      watcher_.step(info_);
      if (log_) log_->step(info_, /*last=*/state_.batch == batches_);
      if (stop) {
        save("last.safetensors");
        return false;
      }
      const bool minutes =
          recipe_.checkpoint_minutes > 0 && after - last_save_ > 60 * recipe_.checkpoint_minutes;
      const bool steps =
          recipe_.checkpoint_steps > 0 && state_.step - last_save_step_ >= recipe_.checkpoint_steps;
      // The end of an epoch saves after its evaluation.
      if ((minutes || steps) && state_.batch < batches_) save("last.safetensors");
    }
    return true;
  }

  // True: some process was asked to stop.
  bool train_step() {
    // Stochastic depth draws from LibTorch's generator: seeded by the place in the run, it needs no
    // state in a checkpoint.
    Random random(static_cast<uint64_t>(recipe_.seed), static_cast<uint64_t>(state_.epoch),
                  static_cast<uint64_t>(state_.batch),
                  1000 + static_cast<uint64_t>(processes_.rank()));
    torch::manual_seed(random.next() >> 1);

    const double begin = now();
    const int64_t images = task_.next();
    optimizer_.zero_grad();
    // Loss, and whether to stop: one exchange for both.
    torch::Tensor shared = torch::zeros({2}, torch::kDouble);
    for (int64_t part = 0; part < recipe_.accumulate; ++part) {
      torch::Tensor loss;
      {
        const Autocast autocast(recipe_.precision);
        loss = task_.loss(part, recipe_.accumulate);
      }
      shared[0] += loss.item<double>();
      // The mean over processes of (count * share) is the sum of the shares.
      gradients_->backward(loss * processes_.count(), part + 1 == recipe_.accumulate);
    }
    shared[1] = stop_.load() ? 1.0 : 0.0;
    processes_.sum(shared);
    const double loss = shared[0].item<double>();
    const double norm = optimizer_.gradient_norm();
    const double factor =
        learning_rate_factor(recipe_.schedule, state_.step, batches_, recipe_.epochs);
    const double lr = recipe_.full_lr() * factor;
    const bool good = std::isfinite(loss) && std::isfinite(norm);
    if (good) {
      const bool clip = recipe_.clip > 0 && norm > recipe_.clip;
      optimizer_.step(lr, clip ? recipe_.clip / norm : 1);
      state_.loss_sum += loss * static_cast<double>(images);
      state_.images += images;
    } else {
      ++state_.bad_steps;
      watcher_.note(
          fmt::format("step {} skipped: loss {}, gradient norm {} ({} of at most {} such steps)",
                      state_.step + 1, loss, norm, state_.bad_steps, recipe_.max_bad_steps));
      check(state_.bad_steps <= recipe_.max_bad_steps,
            "{} steps had a loss or gradient that is not finite; at most {} are allowed "
            "(max_bad_steps). Try a smaller optimizer.lr, or clip = 1",
            state_.bad_steps, recipe_.max_bad_steps);
    }

    const double rate = static_cast<double>(images) / std::max(now() - begin, 1e-9);
    rate_ = rate_ == 0 ? rate : 0.95 * rate_ + 0.05 * rate;
    const double mean =
        state_.images == 0 ? 0 : state_.loss_sum / static_cast<double>(state_.images);
    info_ = {.epoch = state_.epoch,
             .epochs = recipe_.epochs,
             .step = state_.step + 1,
             .steps = recipe_.epochs * batches_,
             .loss = loss,
             .mean_loss = mean,
             .lr = lr,
             .gradient_norm = norm,
             .images_per_second = rate_,
             .skipped = !good};
    return shared[1].item<double>() > 0;
  }

  tasks::Metrics evaluate() {
    ema_.swap();
    task_.model().eval();
    // Each process has its own statistics of a BatchNorm; the saved ones are the first's.
    processes_.broadcast(task_.model().buffers());
    const tasks::Metrics metrics = task_.evaluate(watcher_.evaluation);
    ema_.swap();
    evaluated_ = true;
    return metrics;
  }

  void finish_epoch() {
    const bool last = state_.epoch + 1 == recipe_.epochs;
    EpochInfo info{
        .epoch = state_.epoch,
        .epochs = recipe_.epochs,
        .train_loss = state_.images == 0 ? 0 : state_.loss_sum / static_cast<double>(state_.images),
        .seconds = state_.seconds,
        .metrics = {}};
    if (last || (state_.epoch + 1) % recipe_.evaluate_every == 0) {
      info.metrics = evaluate();
      const double score = info.metrics.front().second;
      info.best = !state_.best.has_value() ||
                  (task_.larger_is_better() ? score > *state_.best : score < *state_.best);
      if (info.best) {
        state_.best = score;
        state_.best_epoch = state_.epoch;
      }
      state_.metrics = nlohmann::json::object();
      for (const auto& [name, value] : info.metrics) state_.metrics[name] = value;
    }
    ++state_.epoch;
    state_.batch = 0;
    state_.loss_sum = 0;
    state_.images = 0;
    // The log first: a resumed run drops the lines behind its checkpoint, but cannot add one.
    if (log_) log_->epoch(info, state_.step);
    if (info.best) save(kBestFile);
    save("last.safetensors");
    watcher_.epoch(info);
    const bool over = is_finished(state_, recipe_);
    if (over && !last) {
      watcher_.note(fmt::format("no better {} for {} epochs: the run ends here (patience)",
                                info.metrics.front().first, state_.epoch - 1 - state_.best_epoch));
    }
    // Pictures take time: a report now and then, at most a twentieth of the run's.
    const bool cheap = now() - last_report_ >= 20 * report_seconds_;
    if (!info.metrics.empty() && !over && cheap) report();
  }

  tasks::Task& task_;
  const Recipe& recipe_;
  const Processes& processes_;
  const TrainOptions& options_;
  const Watcher& watcher_;
  const std::atomic<bool>& stop_;
  const int64_t batches_;  // of an epoch
  Ema ema_;
  AdamW optimizer_;
  std::unique_ptr<GradientMean> gradients_;
  RunState state_;
  std::unique_ptr<RunLog> log_;  // of the first process
  StepInfo info_;
  bool evaluated_ = false;
  double rate_ = 0;
  FolderLock lock_;  // of the first process, on the folder
  double last_report_ = 0;
  double report_seconds_ = 0;
  double last_save_ = 0;
  int64_t last_save_step_ = 0;
};

}  // namespace

int64_t steps_of_epoch(const Recipe& recipe, const tasks::Task& task) {
  return recipe.steps_per_epoch > 0 ? std::min(recipe.steps_per_epoch, task.batches())
                                    : task.batches();
}

TrainResult train(tasks::Task& task, const Recipe& recipe, const Processes& processes,
                  const TrainOptions& options, const Watcher& watcher,
                  const std::atomic<bool>& stop) {
  return Trainer(task, recipe, processes, options, watcher, stop).run();
}

}  // namespace qna::train
