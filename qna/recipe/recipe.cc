#include "qna/recipe/recipe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "qna/base/error.h"
#include "qna/base/fingerprint.h"
#include "qna/format/fields.h"
#include "qna/format/mapped_file.h"
#include "qna/format/toml.h"

namespace qna::train {
namespace {

using format::EnumName;
using format::Fields;
using format::FieldWriter;
using nlohmann::json;

constexpr EnumName<ScheduleKind> kSchedules[] = {{ScheduleKind::kCosine, "cosine"},
                                                 {ScheduleKind::kConstant, "constant"},
                                                 {ScheduleKind::kStep, "step"}};
constexpr EnumName<Precision> kPrecisions[] = {{Precision::kFloat32, "float32"},
                                               {Precision::kBFloat16, "bfloat16"}};

// Every field is named once, here; see format/fields.h.
void visit_about(auto& about, const auto& visit) {
  visit("what", about.what);
  visit("command", about.command);
  visit("budget", about.budget);
  visit("expect", about.expect);
}

void visit_run(auto& r, const auto& visit) {
  visit("task", r.task);
  visit("seed", r.seed);
  visit("epochs", r.epochs);
  visit("batch", r.batch);
  visit("accumulate", r.accumulate);
  visit("clip", r.clip);
  visit.choose("precision", r.precision, kPrecisions);
  visit("ema", r.ema);
  visit("ema_warmup", r.ema_warmup);
  visit("max_bad_steps", r.max_bad_steps);
  visit("evaluate_every", r.evaluate_every);
  visit("patience", r.patience);
  visit("freeze_epochs", r.freeze_epochs);
  visit("steps_per_epoch", r.steps_per_epoch);
  visit("checkpoint_minutes", r.checkpoint_minutes);
  visit("checkpoint_steps", r.checkpoint_steps);
}

void visit_group(auto& g, const auto& visit) {
  visit("match", g.match);
  visit("lr_scale", g.lr_scale);
  visit("weight_decay", g.weight_decay);
}

void visit_optimizer(auto& o, const auto& visit) {
  visit("lr", o.lr);
  visit("lr_batch", o.lr_batch);
  visit("weight_decay", o.weight_decay);
  visit("betas", o.betas);
  visit("epsilon", o.epsilon);
  visit("depth_decay", o.depth_decay);
}

void visit_schedule(auto& s, const auto& visit) {
  visit.choose("kind", s.kind, kSchedules);
  visit("warmup_epochs", s.warmup_epochs);
  visit("warmup_lr", s.warmup_lr);
  visit("min_lr", s.min_lr);
  visit("step_epoch", s.step_epoch);
  visit("step_factor", s.step_factor);
}

void check_range(const char* key, double value, double least, double most) {
  check(std::isfinite(value) && value >= least && value <= most,
        "recipe: {} must be from {} to {}, got {}", key, least, most, value);
}

void check_recipe(const Recipe& r) {
  constexpr double kMany = 1e9;
  check_range("seed", static_cast<double>(r.seed), 0, 0x1p53);
  check_range("epochs", static_cast<double>(r.epochs), 1, kMany);
  check_range("batch", static_cast<double>(r.batch), 1, 1 << 24);
  check_range("accumulate", static_cast<double>(r.accumulate), 1, static_cast<double>(r.batch));
  check_range("clip", r.clip, 0, kMany);
  check(r.ema >= 0 && r.ema < 1, "recipe: ema must be from 0 to below 1, got {}", r.ema);
  check_range("max_bad_steps", static_cast<double>(r.max_bad_steps), 0, kMany);
  check_range("evaluate_every", static_cast<double>(r.evaluate_every), 1, kMany);
  check_range("patience", static_cast<double>(r.patience), 0, kMany);
  check_range("freeze_epochs", static_cast<double>(r.freeze_epochs), 0,
              static_cast<double>(r.epochs));
  check_range("steps_per_epoch", static_cast<double>(r.steps_per_epoch), 0, kMany);
  check_range("checkpoint_minutes", r.checkpoint_minutes, 0, kMany);
  check_range("checkpoint_steps", static_cast<double>(r.checkpoint_steps), 0, kMany);
  const Optimizer& o = r.optimizer;
  check_range("optimizer.lr", o.lr, 0, 1e3);
  check_range("optimizer.lr_batch", o.lr_batch, 0, kMany);
  check_range("optimizer.weight_decay", o.weight_decay, 0, 1e3);
  for (const double beta : o.betas) {
    check(beta >= 0 && beta < 1, "recipe: optimizer.betas must be from 0 to below 1, got {}", beta);
  }
  check_range("optimizer.epsilon", o.epsilon, 0, 1);
  check(o.depth_decay > 0 && o.depth_decay <= 1,
        "recipe: optimizer.depth_decay must be above 0 and at most 1, got {}", o.depth_decay);
  for (const ParameterGroup& group : o.groups) {
    check(!group.match.empty(), "recipe: optimizer.group needs a pattern 'match'");
    check_range("optimizer.group.lr_scale", group.lr_scale, 0, 1e6);
    check_range("optimizer.group.weight_decay", group.weight_decay, -1, 1e3);
  }
  const Schedule& s = r.schedule;
  check_range("schedule.warmup_epochs", s.warmup_epochs, 0, static_cast<double>(r.epochs));
  check_range("schedule.warmup_lr", s.warmup_lr, 0, 1);
  check_range("schedule.min_lr", s.min_lr, 0, 1);
  check_range("schedule.step_epoch", s.step_epoch, 0, kMany);
  check_range("schedule.step_factor", s.step_factor, 0, 1);
}

void set_below(json& place, const std::string& key, size_t begin, const json& value) {
  const size_t dot = key.find('.', begin);
  const std::string word = key.substr(begin, dot - begin);
  const auto go_on = [&](json& inner) {
    if (dot == std::string::npos) {
      inner = value;
    } else {
      set_below(inner, key, dot + 1, value);
    }
  };
  if (place.is_array()) {
    if (word == "*") {
      for (json& element : place) go_on(element);
      return;
    }
    const bool is_number = !word.empty() && word.size() < 9 &&
                           word.find_first_not_of("0123456789") == std::string::npos;
    check(is_number && std::stoul(word) < place.size(),
          "{}: '{}' is a list of {}; '{}' must be a number below that, or *", key,
          key.substr(0, begin - 1), place.size(), word);
    return go_on(place[std::stoul(word)]);
  }
  check(place.is_object() || place.is_null(), "{}: '{}' is not a table", key,
        key.substr(0, begin - 1));
  go_on(place[word]);
}

// "a.b.c=value" of the command line.
void set(json& object, const std::string& setting) {
  const size_t equals = setting.find('=');
  check(equals != std::string::npos && equals > 0, "--set must be KEY=VALUE, got '{}'", setting);
  const std::string key = setting.substr(0, equals);
  const std::string text = setting.substr(equals + 1);
  json value;
  try {
    value = format::parse_toml("value = " + text, "--set " + key).at("value");
  } catch (const Error&) {
    value = text;  // not a TOML value, so a text without quotes, such as a path
  }
  try {
    set_value(object, key, value);
  } catch (const Error& error) {
    fail("--set {}", error.what());
  }
}

// Keys of speed, safety and words: nothing of a result.
constexpr std::array<std::string_view, 6> kWithoutEffect = {
    "about",         "data.workers",       "data.cache_mb",
    "max_bad_steps", "checkpoint_minutes", "checkpoint_steps"};
// Keys that may change when a run goes on: files may have moved, and it may end earlier.
constexpr std::array<std::string_view, 3> kMayChange = {"data.path", "teacher.targets", "patience"};

bool contains(const auto& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

void erase(json& object, std::string_view key) {
  const size_t dot = key.find('.');
  const auto part =
      object.is_object() ? object.find(std::string(key.substr(0, dot))) : object.end();
  if (part == object.end()) return;
  if (dot == std::string_view::npos) {
    object.erase(part);
  } else {
    erase(*part, key.substr(dot + 1));
  }
}

void collect_differences(const json& a, const json& b, const std::string& path,
                         std::vector<std::string>& out) {
  if (contains(kWithoutEffect, path) || contains(kMayChange, path)) return;
  if (!a.is_object() || !b.is_object()) {
    if (a != b) out.push_back(path);
    return;
  }
  std::set<std::string> keys;
  for (const auto& [key, value] : a.items()) keys.insert(key);
  for (const auto& [key, value] : b.items()) keys.insert(key);
  for (const std::string& key : keys) {
    const std::string inner = path.empty() ? key : path + "." + key;
    collect_differences(a.value(key, json()), b.value(key, json()), inner, out);
  }
}

}  // namespace

void set_value(json& object, const std::string& key, const json& value) {
  set_below(object, key, 0, value);
}

void change(json& object, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) set(object, setting);
}

void name_common_sections(const Fields& sections) {
  for (const char* name : {"about", "optimizer", "schedule"}) sections.find(name);
}

Recipe recipe_from_json(const json& object) {
  Recipe recipe;
  const Fields fields(object, "recipe");
  visit_run(recipe, fields);
  const Fields about = fields.table("about");
  visit_about(recipe.about, about);
  about.refuse_unknown();
  const Fields optimizer = fields.table("optimizer");
  visit_optimizer(recipe.optimizer, optimizer);
  for (const Fields& row : optimizer.tables("group")) {
    visit_group(recipe.optimizer.groups.emplace_back(), row);
    row.refuse_unknown();
  }
  optimizer.refuse_unknown();
  const Fields schedule = fields.table("schedule");
  visit_schedule(recipe.schedule, schedule);
  schedule.refuse_unknown();
  // What is a table belongs to the task; anything else that is left is a mistake.
  json rest = object;
  json known = to_json(Recipe{});
  for (const auto& [key, value] : known.items()) rest.erase(key);
  for (const auto& [key, value] : rest.items()) {
    if (value.is_object()) {
      fields.find(key.c_str());
      recipe.sections[key] = value;
    }
  }
  for (const char* section : {"augment", "data", "loss", "mix", "model", "preprocess", "teacher"}) {
    fields.table(section);  // throws where it is something else
  }
  fields.refuse_unknown();
  check_recipe(recipe);
  return recipe;
}

json to_json(const Recipe& recipe) {
  json out = recipe.sections;
  visit_run(recipe, FieldWriter(out));
  visit_about(recipe.about, FieldWriter(out["about"]));
  json& optimizer = out["optimizer"];
  visit_optimizer(recipe.optimizer, FieldWriter(optimizer));
  for (const ParameterGroup& group : recipe.optimizer.groups) {
    json row;
    visit_group(group, FieldWriter(row));
    optimizer["group"].push_back(row);
  }
  json& schedule = out["schedule"];
  visit_schedule(recipe.schedule, FieldWriter(schedule));
  return out;
}

// Where recipes name files of their user.
constexpr const char* kPaths[] = {"/data/path", "/model/backbone", "/model/weights",
                                  "/teacher/targets"};

// Calls change(path) for each path that is given, and puts its result in the place.
static void change_paths(json& object, const auto& change) {
  const auto change_one = [&](json& text) {
    if (!text.is_string()) return;
    const std::filesystem::path path = text.get<std::string>();
    if (!path.empty()) text = change(path).string();
  };
  for (const char* key : kPaths) {
    const json::json_pointer place(key);
    if (!object.contains(place)) continue;
    json& value = object.at(place);
    change_one(value);
    if (!value.is_array()) continue;
    for (json& each : value) change_one(each);
  }
}

void resolve_paths(json& object, const std::string& file) {
  if (!object.is_object()) return;
  change_paths(object, [&](const std::filesystem::path& path) {
    if (path.is_absolute()) return path;
    const auto beside = (std::filesystem::path(file).parent_path() / path).lexically_normal();
    std::error_code error;
    return std::filesystem::exists(beside, error) ? beside : path;
  });
}

// A file, with what it extends beneath it. depth: files on the way here.
static json read_extended(const std::string& path, int depth) {
  check(depth < 8, "{}: recipes extend each other in more than 8 steps, or in a circle", path);
  json object = format::read_toml_or_json(path);
  resolve_paths(object, path);
  if (!object.is_object() || !object.contains("extends")) return object;
  const json extends = object["extends"];
  check(extends.is_string(), "{}: extends must be the name of a file, got {}", path,
        extends.dump());
  object.erase("extends");
  const auto beside = std::filesystem::path(path).parent_path() / extends.get<std::string>();
  json base = read_extended(beside.string(), depth + 1);
  base.merge_patch(object);  // tables are merged, all else is replaced
  return base;
}

Recipe read_recipe(const std::string& path, const std::vector<std::string>& settings) {
  json object = read_extended(path, 0);
  change(object, settings);
  try {
    return recipe_from_json(object);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

Recipe with_absolute_paths(Recipe recipe) {
  change_paths(recipe.sections, [](const std::filesystem::path& path) {
    return path.is_absolute() ? path : std::filesystem::absolute(path).lexically_normal();
  });
  return recipe;
}

static std::string content_of(const std::filesystem::path& path) {
  // Sweeps ask for the same file in every run.
  static std::map<std::pair<std::string, std::filesystem::file_time_type>, std::string> known;
  std::string& content = known[{path.string(), std::filesystem::last_write_time(path)}];
  if (content.empty()) {
    const auto file = format::MappedFile::open(path.string());
    Fingerprint bytes;
    bytes.add({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    content = bytes.text();
  }
  return content;
}

// The same wherever it lies: its name and, of a file, what is in it.
static std::filesystem::path named_by_content(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    return path.filename().string() + " " + content_of(path);
  }
  return path.has_filename() ? path.filename() : path.parent_path().filename();  // "pictures/"
}

std::string fingerprint(const Recipe& recipe) {
  json object = to_json(recipe);
  change_paths(object, named_by_content);
  for (const std::string_view key : kWithoutEffect) erase(object, key);
  Fingerprint text;
  text.add(object.dump());
  return text.text();
}

std::vector<std::string> differences(const Recipe& a, const Recipe& b) {
  std::vector<std::string> out;
  collect_differences(to_json(a), to_json(b), "", out);
  return out;
}

}  // namespace qna::train
