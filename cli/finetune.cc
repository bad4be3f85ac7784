// The program qna-finetune: a network for somebody's own pictures, without a recipe. `qna finetune`
// starts it. It looks at the data, plans, measures its speed, and trains by the recipe it made.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>

#include "cli/model_argument.h"
#include "cli/program.h"
#include "cli/torch_program.h"
#include "cli/training_run.h"
#include "cli/verbs_of_kind.h"
#include "qna/base/error.h"
#include "qna/finetune/hold_back_boxes.h"
#include "qna/finetune/plan.h"
#include "qna/finetune/remarks.h"
#include "qna/kinds/kind.h"
#include "qna/train/speed.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

struct FinetuneArguments {
  std::string data;
  double minutes = 5;
  std::string weights;
  std::vector<std::string> settings;
  std::string out;
  bool dry_run = false;
  bool resume = false;
  int threads = 0;
  bool quiet = false;
};

// For what comes behind training: the last evaluation, the report, and a machine that has other
// things to do.
constexpr double kTrainingShare = 0.93;

double seconds_since_start() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string run_folder(const FinetuneArguments& a) {
  if (!a.out.empty()) return a.out;
  fs::path data = fs::path(a.data).lexically_normal();
  if (!data.has_filename()) data = data.parent_path();
  const std::string name = fs::absolute(data).lexically_normal().filename().string();
  return (fs::path("runs") / name.substr(0, name.find(".tar"))).string();
}

finetune::Start start_from(const FinetuneArguments& a, config::Kind kind) {
  const bool none = a.weights == "none";
  return {.file = a.weights.empty() || none ? default_weights(kind) : a.weights,
          .random_weights = none};
}

void apply_settings(finetune::Plan& plan, const FinetuneArguments& a) {
  for (const std::string& setting : a.settings) {
    train::change(plan.recipe, {setting});
    const bool is_size = setting.starts_with("preprocess.") || setting.starts_with("augment.size");
    plan.keeps_size = plan.keeps_size || is_size;
  }
}

void print_plan(const finetune::Plan& plan, const FinetuneArguments& a) {
  fmt::print("\nplan\n");
  for (const finetune::Choice& choice : plan.choices) {
    fmt::print("  {:9} {:20} {}\n", choice.what, choice.value, choice.why);
  }
  for (const std::string& setting : a.settings) fmt::print("  {:9} {}\n", "set", setting);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_survey(const finetune::Survey& survey) {
  for (const std::string& line : finetune::describe(survey)) fmt::print("{}\n", line);
  std::fflush(stdout);
  for (const std::string& line : finetune::warnings(survey)) {
    fmt::print(stderr, "warning: {}\n", line);
  }
}

// What a reader of the recipe should know.
void add_about(nlohmann::json& recipe, const FinetuneArguments& a, const finetune::Survey& survey) {
  recipe["about"] = {
      {"what", fmt::format("{}: {} classes, {} pictures to train", survey.path,
                           survey.classes.size(), survey.train_images())},
      {"command", fmt::format("qna finetune {} --minutes {}", quoted(a.data), a.minutes)},
      {"budget", fmt::format("{} minutes on the machine where the recipe was made", a.minutes)}};
}

train::Recipe make_recipe(const FinetuneArguments& a, const std::string& folder) {
  const finetune::Survey survey = finetune::survey(a.data);
  if (!a.quiet) print_survey(survey);
  finetune::Plan draft = finetune::draft_plan(survey, start_from(a, survey.kind));
  apply_settings(draft, a);
  const double total = 60 * a.minutes;
  const auto planned_at = [&](const nlohmann::json& recipe, int64_t size) {
    const double measuring = std::clamp(0.03 * total, 0.2, 8.0);
    const train::Speed speed =
        train::measure_speed(train::recipe_from_json(recipe), a.threads, measuring);
    const double left = std::max(1.0, kTrainingShare * total - seconds_since_start());
    return finetune::fit_to_time(draft, survey, speed, left, size);
  };
  finetune::Plan plan = planned_at(draft.recipe, 0);
  // Reading pictures takes as long whatever their size: another size has a speed of its own.
  if (plan.recipe["preprocess"] != draft.recipe["preprocess"]) {
    plan = planned_at(plan.recipe, plan.recipe["preprocess"]["crop"][0].get<int64_t>());
  }
  add_about(plan.recipe, a, survey);
  apply_settings(plan, a);  // whatever the plan thinks of them
  if (!a.quiet) print_plan(plan, a);
  if (!a.dry_run) finetune::split_boxes(survey, plan.recipe["data"], folder);
  return train::recipe_from_json(plan.recipe);
}

// To use it, to measure it again, to look at it.
void print_next(const train::Recipe& recipe, const train::RunResult& result) {
  const nlohmann::json& data = recipe.sections.at("data");
  const std::string file = quoted(result.best_file);
  const bool boxes = kinds::row_of_task(recipe.task).kind == config::Kind::kDetector;
  if (boxes) {
    const auto images = quoted(data.at("val_images").get<std::string>());
    fmt::print("\nNext: qna detect {} PICTURE... -o found/\n", file);
    fmt::print("      qna eval {} {} --annotations {}\n", file, images,
               quoted(data.at("val").get<std::string>()));
  } else {
    const std::string split = data.value("val", "");
    fmt::print("\nNext: qna predict {} PICTURE...\n", file);
    fmt::print("      qna eval {} {}{}\n", file, quoted(data.at("path").get<std::string>()),
               split.empty() ? "" : " --split " + quoted(split));
  }
  fmt::print("      xdg-open {}\n", quoted(result.report));
  fmt::print(
      "Not good enough? More --minutes, more pictures of the worst classes: docs/own-data.md\n");
}

void run(const FinetuneArguments& a) {
  const std::string folder = run_folder(a);
  const std::string recipe_file = (fs::path(folder) / "recipe.toml").string();
  const std::string last = (fs::path(folder) / "last.safetensors").string();
  std::error_code ignored;
  const bool goes_on = a.resume && fs::exists(last, ignored);
  check(goes_on || a.dry_run || !fs::exists(last, ignored) || !train::has_begun(last),
        "{}: there is a run already; go on with it by --resume, or choose another folder with -o",
        folder);
  const train::Recipe recipe =
      goes_on ? train::read_recipe(recipe_file, a.settings) : make_recipe(a, folder);
  if (a.dry_run) return;
  const std::optional<train::RunResult> result = run_and_show(
      {.recipe = recipe,
       .options = {.folder = folder, .resume = goes_on, .threads = a.threads},
       .quiet = a.quiet,
       .go_on = fmt::format("qna finetune {} --out {} --resume", quoted(a.data), quoted(folder))},
      train::Rank{});
  if (!a.quiet) print_next(recipe, *result);
}

void add_options(Command program) {
  auto a = std::make_shared<FinetuneArguments>();
  program
      .option("data", a->data,
              "Class folders (or a tar of them), idx files, or pictures with boxes: COCO's JSON,\n"
              "VOC's XML, YOLO's labels")
      .required()
      .type_name("DATA");
  program.option("--minutes", a->minutes, "That it may take, all in all [5]").range(0.01, 1e5);
  program.option("-o,--out", a->out, "Folder of the run [runs/ and the data's name]")
      .type_name("FOLDER");
  program
      .option("--weights", a->weights,
              "To start from, and whose network is taken: a file, or 'none' for random ones\n"
              "[those that come with the program]")
      .type_name("FILE");
  program
      .option("--set", a->settings,
              "Another value for a key of the recipe that is made, such as epochs=10 or\n"
              "optimizer.lr=1e-4; may be given often")
      .one_value_each()
      .type_name("KEY=VALUE");
  program.flag("--dry-run", a->dry_run, "Look, measure and show the plan; write nothing");
  program.flag("--resume", a->resume,
               "Go on with the run in the folder; start it if there is none");
  program.option("--threads", a->threads, "That compute [all cores]").range(1, 1024);
  program.flag("--quiet", a->quiet, "Print nothing but errors and what was left out");
  program.footer(
      "Without a val (valid, test) split a part of the pictures is held back to measure on.\n"
      "The folder gets best.safetensors, report.html and recipe.toml, the recipe that was run:\n"
      "change it and run it with 'qna train'. Ctrl-C saves and leaves; --resume goes on to the\n"
      "same weights.\n\n"
      "Examples:\n"
      "  qna finetune flowers/\n"
      "  qna finetune flowers/ --minutes 20 -o better\n"
      "  qna finetune cells.coco/ --minutes 10 --dry-run");
  program.callback([a] { run(*a); });
}

}  // namespace
}  // namespace qna::cli

int main(int argc, char** argv) {
  qna::cli::seconds_since_start();
  std::signal(SIGPIPE, SIG_IGN);  // as in qna-train
  qna::cli::Program program(qna::cli::program_name(argv[0]), "A network for your own pictures");
  program.version([] { return qna::cli::version_text("qna-finetune"); });
  qna::cli::add_options(program.command());
  return qna::cli::run_torch_program(program, argc, argv);
}
