#include "qna/train/run_state.h"

#include <fmt/ranges.h>

#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/format/fields.h"
#include "qna/format/safetensors.h"

namespace qna::train {
namespace {

using nlohmann::json;

// Names of a file's tensors behind "training/" begin with these, and the optimiser's with its own.
const std::string kWeights = "weights/";
const std::string kCompanion = "companion/";

void visit_state(auto& s, const auto& visit) {
  visit("epoch", s.epoch);
  visit("batch", s.batch);
  visit("step", s.step);
  visit("bad_steps", s.bad_steps);
  visit("loss_sum", s.loss_sum);
  visit("pictures", s.images);
  visit("seconds", s.seconds);
  visit("best_epoch", s.best_epoch);
}

RunState state_from_json(const json& object) {
  RunState state;
  const format::Fields fields(object, "checkpoint", "state");
  visit_state(state, fields);
  double best = 0;
  if (fields.find("best") != nullptr) {
    fields("best", best);
    state.best = best;
  }
  if (const json* metrics = fields.find("metrics")) state.metrics = *metrics;
  fields.refuse_unknown();
  check(state.epoch >= 0 && state.batch >= 0 && state.step >= 0,
        "checkpoint: the position must not be negative");
  return state;
}

}  // namespace

json to_json(const RunState& state) {
  json out;
  visit_state(state, [&](const char* key, const auto& value) { out[key] = value; });
  if (state.best.has_value()) out["best"] = *state.best;
  out["metrics"] = state.metrics;
  return out;
}

bool is_finished(const RunState& state, const Recipe& recipe) {
  if (state.epoch >= recipe.epochs) return true;
  // Not before the next evaluation has had its chance.
  const bool just_evaluated = state.batch == 0 && state.epoch % recipe.evaluate_every == 0;
  return recipe.patience > 0 && state.best.has_value() && just_evaluated &&
         state.epoch - 1 - state.best_epoch >= recipe.patience;
}

bool has_begun(const std::string& path) {
  try {
    const format::SafetensorsFile file(path);
    const auto found = file.metadata().find("training");
    if (found == file.metadata().end()) return true;
    const json training = format::parse_json(found->second, path);
    return state_from_json(training.at("state")).step > 0;
  } catch (const std::exception&) {
    return true;
  }
}

void save_run(const std::string& path, tasks::Task& task, const Recipe& recipe,
              const RunState& state, const AdamW& optimizer, Ema& ema) {
  checkpoint::NamedTensors extra = optimizer.state();
  if (task.companion() != nullptr) {
    for (const auto& item : task.companion()->named_parameters()) {
      extra.emplace_back(kCompanion + item.key(), item.value());
    }
  }
  ema.swap();  // the file predicts with the mean
  for (const auto& [name, tensor] : ema.tensors()) extra.emplace_back(kWeights + name, tensor);
  try {
    task.save(path, {{"recipe", to_json(recipe)}, {"state", to_json(state)}}, extra);
  } catch (...) {
    ema.swap();
    throw;
  }
  ema.swap();
}

RunState load_run(const std::string& path, tasks::Task& task, const Recipe& recipe,
                  AdamW& optimizer, Ema& ema) {
  const format::SafetensorsFile file(path);
  const auto found = file.metadata().find("training");
  const json training =
      found == file.metadata().end()
          ? json()
          : format::parse_json(found->second, path + ": the metadata entry 'training'");
  check(training.is_object() && training.contains("state") && training.contains("recipe"),
        "{}: the file holds a model but no run that could go on", path);
  const Recipe before = recipe_from_json(training.at("recipe"));
  std::vector<std::string> other = differences(recipe, before);
  if (recipe.epochs > before.epochs) std::erase(other, "epochs");  // it goes on for longer
  if (!other.empty()) {
    fail(
        "{}: the run was started with another recipe; the keys that differ are {}{}. Undo the "
        "change, or start a new run in another folder",
        path, fmt::join(other, ", "),
        recipe.epochs < before.epochs
            ? fmt::format(" (epochs may only grow, from {})", before.epochs)
            : "");
  }
  RunState state = state_from_json(training.at("state"));
  state.epochs_before = before.epochs;

  std::map<std::string, torch::Tensor> extra;
  const std::string prefix = engine::kTrainingPrefix;
  for (const format::TensorView& view : file.tensors()) {
    if (view.name.starts_with(prefix)) {
      extra[view.name.substr(prefix.size())] = checkpoint::tensor_from(view, path);
    }
  }
  torch::NoGradGuard no_grad;
  const auto copy = [&](torch::Tensor to, const torch::Tensor& from, const std::string& name) {
    check(to.sizes() == from.sizes(), "{}: '{}' has another size than in the model", path, name);
    to.copy_(from);
  };
  for (const auto& [name, tensor] : checkpoint::named_tensors(task.model())) {
    copy(tensor, checkpoint::tensor_from(file.at(name), path), name);
  }
  const auto copy_parameters = [&](const torch::nn::Module& module, const std::string& folder) {
    for (const auto& item : module.named_parameters()) {
      const auto weight = extra.find(folder + item.key());
      check(weight != extra.end(), "{}: there is no tensor '{}{}{}'", path, prefix, folder,
            item.key());
      copy(item.value(), weight->second, item.key());
    }
  };
  if (ema.on()) {
    ema.swap();  // the file's model is the mean
    copy_parameters(task.model(), kWeights);
  }
  if (task.companion() != nullptr) copy_parameters(*task.companion(), kCompanion);
  optimizer.load_state(extra);
  return state;
}

}  // namespace qna::train
