#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/verbs.h"
#include "qna/base/file.h"
#include "qna/base/runtime.h"
#include "qna/coco/oddities.h"
#include "qna/coco/summary.h"
#include "qna/format/text.h"

namespace qna::cli {
namespace {

using nlohmann::json;

struct CocoEvalArguments {
  std::string truth;
  std::string detections;
  std::string json_file;
  bool per_category = false;
  bool oddities = false;
  int threads = 0;
};

// What a category's row shows of kMeasures: AP to APl, and AR100.
constexpr size_t kColumns[] = {0, 1, 2, 3, 4, 5, 8};

void print_categories(const coco::Annotations& truth, const coco::Evaluation& evaluation) {
  std::vector<int64_t> objects(truth.categories.size());
  for (const coco::Annotation& annotation : truth.annotations) {
    if (!annotation.crowd) objects[annotation.category]++;
  }
  size_t width = 8;
  for (const coco::Category& category : truth.categories) {
    width = std::max(width, category.name.size());
  }
  fmt::print("\n{:>6}  {:<{}} {:>7}", "id", "category", width, "objects");
  for (const size_t column : kColumns) fmt::print(" {:>6}", coco::kMeasures[column].name);
  fmt::print("\n");
  for (size_t i = 0; i < truth.categories.size(); ++i) {
    const coco::Category& category = truth.categories[i];
    fmt::print("{:>6}  {:<{}} {:>7}", category.id, format::printable(category.name), width,
               objects[i]);
    for (const size_t column : kColumns) {
      const double value = coco::mean(evaluation, coco::kMeasures[column], static_cast<int64_t>(i));
      fmt::print(" {:>6}", value < 0 ? "-" : fmt::format("{:.3f}", value));
    }
    fmt::print("\n");
  }
}

json to_json(const coco::Annotations& truth, const coco::Evaluation& evaluation) {
  json out = json::object();
  for (const coco::Measure& measure : coco::kMeasures) {
    out[measure.name] = coco::mean(evaluation, measure);
  }
  json& categories = out["categories"] = json::array();
  for (size_t i = 0; i < truth.categories.size(); ++i) {
    json row = {{"id", truth.categories[i].id}, {"name", truth.categories[i].name}};
    for (const coco::Measure& measure : coco::kMeasures) {
      row[measure.name] = coco::mean(evaluation, measure, static_cast<int64_t>(i));
    }
    categories.push_back(std::move(row));
  }
  return out;
}

void run_coco_eval(const CocoEvalArguments& a) {
  const coco::Annotations truth = coco::read_annotations(a.truth);
  const std::vector<coco::Detection> detections = coco::read_results(a.detections, truth);
  if (a.oddities) {
    for (const coco::Oddity& oddity : coco::find_oddities(truth)) {
      fmt::print(stderr, "{}: {}\n", a.truth, coco::to_text(oddity));
    }
  }
  ThreadRuntime runtime(a.threads > 0 ? a.threads
                                      : static_cast<int>(std::thread::hardware_concurrency()));
  const coco::Evaluation evaluation = coco::evaluate(truth, detections, runtime);

  if (!a.json_file.empty()) {
    write_file(a.json_file, to_json(truth, evaluation).dump(2) + "\n");
  }
  for (const coco::Measure& measure : coco::kMeasures) {
    fmt::print("{}\n", coco::summary_line(measure, coco::mean(evaluation, measure)));
  }
  if (a.per_category) print_categories(truth, evaluation);
}

}  // namespace

void add_coco_eval(Command program) {
  Command verb = program.verb("coco-eval", "Measure detections by the COCO protocol for boxes");
  auto a = std::make_shared<CocoEvalArguments>();
  verb.option("truth", a->truth, "Ground truth: COCO JSON with images, annotations, categories")
      .required()
      .type_name("GT.json");
  verb.option("detections", a->detections,
              "Results: a JSON list of {image_id, category_id, bbox, score}")
      .required()
      .type_name("DT.json");
  verb.flag("--per-category", a->per_category, "Also a table with a row for each category");
  verb.option("--json", a->json_file, "Also write the numbers, with all digits, to this file")
      .type_name("FILE");
  verb.flag("--oddities", a->oddities, "Say on stderr what is strange in the ground truth");
  verb.option("--threads", a->threads, "Threads [all cores]").range(1, 1024);
  verb.footer(
      "The numbers are those of pycocotools. -1 means that there are no objects to find.\n\n"
      "Examples:\n"
      "  qna coco-eval instances_val2017.json detections.json\n"
      "  qna coco-eval instances_val2017.json detections.json --per-category --json numbers.json");
  verb.callback([a] { run_coco_eval(*a); });
}

}  // namespace qna::cli
