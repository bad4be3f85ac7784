#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "cli/each_picture.h"
#include "cli/output_folder.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/progress.h"
#include "qna/checkpoint/detector_file.h"
#include "qna/coco/results.h"
#include "qna/data/image_stream.h"
#include "qna/image/read.h"
#include "qna/image/write_png.h"
#include "qna/tasks/detection_pictures.h"
#include "qna/tasks/find_objects.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string file;
  std::vector<std::string> images;
  std::string out;          // empty: no pictures
  std::string json;         // empty: no file
  std::string annotations;  // whose picture ids the JSON gets
  double threshold = 0.5;
  int64_t size = 0;  // 0: as the file says
  bool attention = false;
};

// The ids of pictures in COCO's JSON.
class PictureIds {
 public:
  explicit PictureIds(const std::string& annotations) : is_given_(!annotations.empty()) {
    if (!is_given_) return;
    for (const coco::Picture& picture : coco::read_annotations(annotations).pictures) {
      ids_[fs::path(picture.file_name).filename().string()] = picture.id;
    }
  }

  // By the annotations; without them the number that the name is, as in COCO, or else the place in
  // the list, from 1.
  int64_t of(const std::string& path, size_t place) const {
    const std::string name = fs::path(path).filename().string();
    if (is_given_) {
      const auto found = ids_.find(name);
      check(found != ids_.end(), "{}: --annotations has no picture of that name", path);
      return found->second;
    }
    const std::string stem = fs::path(path).stem().string();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
    const bool is_number = error == std::errc() && end == stem.data() + stem.size() && number > 0;
    return is_number ? number : static_cast<int64_t>(place) + 1;
  }

 private:
  const bool is_given_;
  std::map<std::string, int64_t> ids_;
};

class Detector {
 public:
  explicit Detector(const Arguments& a) : arguments_(a), ids_(a.annotations) {
    loaded_ = checkpoint::load_detector(a.file);
    for (const std::string& line : loaded_.report) fmt::print(stderr, "{}\n", line);
    if (a.size > 0) loaded_.info.preprocess.resize = a.size;
    if (!a.out.empty()) make_output_folder(a.out);
  }

  void look_at(const std::string& path, size_t place, Progress& progress) {
    const image::Image photo = image::read_image(path);
    const int64_t id = ids_.of(path, place);
    const tasks::FoundObjects objects = tasks::find_objects(
        loaded_.model, photo, loaded_.info.preprocess,
        {.threshold = arguments_.threshold, .sorted = true}, arguments_.attention);
    const int64_t count = objects.found.scores.size(0);
    std::vector<tasks::DrawnBox> boxes;
    for (int64_t i = 0; i < count; ++i) {
      boxes.push_back(tasks::drawn_box(objects.found, i, loaded_.info.labels));
      const double score = objects.found.scores[i].item<double>();
      add_result(boxes.back(), id, score);
    }
    progress.wipe();
    print(path, id, boxes);
    if (!arguments_.out.empty()) write_pictures(path, photo, boxes, objects);
  }

  // All results so far, in COCO's format.
  void write_json() const {
    coco::write_results(arguments_.json, results_);
    fmt::print("{}\n", arguments_.json);
  }

 private:
  void add_result(const tasks::DrawnBox& drawn, int64_t picture, double score) {
    const auto& [left, top, right, bottom] = drawn.box;
    const std::vector<int64_t>& ids = loaded_.info.category_ids;
    results_.push_back({.picture_id = picture,
                        .category_id = ids.empty() ? drawn.label : ids[drawn.label],
                        .box = {left, top, right - left, bottom - top},
                        .score = score});
  }

  void print(const std::string& path, int64_t id, const std::vector<tasks::DrawnBox>& boxes) const {
    fmt::print("{} (id {}): {} object{}\n", path, id, boxes.size(), boxes.size() == 1 ? "" : "s");
    for (const tasks::DrawnBox& box : boxes) {
      fmt::print("  {:24}  x {:.0f} to {:.0f}, y {:.0f} to {:.0f}\n", box.text, box.box[0],
                 box.box[2], box.box[1], box.box[3]);
    }
    std::fflush(stdout);
  }

  void write_pictures(const std::string& path, const image::Image& photo,
                      std::vector<tasks::DrawnBox> boxes, const tasks::FoundObjects& objects) {
    const std::string stem = (fs::path(arguments_.out) / stems_.of(path)).string();
    const auto write = [](const std::string& file, const image::Image& picture) {
      image::write_png(file, picture);
      fmt::print("  {}\n", file);
    };
    if (arguments_.attention) {
      for (size_t i = 0; i < boxes.size(); ++i) {
        write(fmt::format("{}.attention-{}.png", stem, i + 1),
              tasks::draw_query_attention(photo, objects.attention[static_cast<int64_t>(i)],
                                          objects.attention_stride, boxes[i]));
      }
    }
    std::reverse(boxes.begin(), boxes.end());  // the surest on top
    write(stem + ".png", tasks::draw_boxes(photo, boxes));
  }

  const Arguments& arguments_;
  const PictureIds ids_;
  checkpoint::LoadedDetector loaded_;
  std::vector<coco::Detection> results_;
  UniqueStems stems_;
};

void run(const Arguments& a) {
  check(!a.attention || !a.out.empty(), "--attention needs a folder for its pictures: --out");
  Detector detector(a);
  const std::vector<std::string> paths = data::find_images(a.images);
  if (!a.out.empty()) check_keeps_pictures(a.out, paths);
  const int64_t failed = for_each_picture(
      paths, [&](size_t i, Progress& progress) { detector.look_at(paths[i], i, progress); });
  if (!a.json.empty()) detector.write_json();
  check_all_used(failed, paths);
}

}  // namespace

void add_detect(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("detect", "Find objects in pictures");
  auto a = std::make_shared<Arguments>();
  verb->add_option("file", a->file, "Weights of a detector (.safetensors)")
      ->required()
      ->type_name("FILE");
  verb->add_option("images", a->images, "Pictures, or folders of them (JPEG, PNG)")
      ->required()
      ->type_name("IMAGE");
  verb->add_option("-o,--out", a->out, "Folder for pictures with boxes, made if need be")
      ->type_name("FOLDER");
  verb->add_option("--json", a->json, "File for the detections in COCO's format")
      ->type_name("FILE");
  verb->add_option("--annotations", a->annotations,
                   "COCO file that has the pictures' ids, by file name [the number that a name\n"
                   "is, or else its place in the list]")
      ->type_name("FILE");
  verb->add_option("--threshold", a->threshold, "Least score, 0 to 1 [0.5]")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--size", a->size, "Shorter side to look at [as the weights file says]")
      ->check(CLI::Range(int64_t{16}, int64_t{8192}));
  verb->add_flag("--attention", a->attention, "Also draw where the decoder looks for each object");
  verb->footer(
      "A picture that cannot be read is reported and does not stop the rest; the exit status then\n"
      "is 1. For `qna coco-eval`, write all detections: --threshold 0.\n\n"
      "Examples:\n"
      "  qna detect detr.safetensors street.jpg -o found/\n"
      "  qna detect detr.safetensors photos/ --threshold 0.8 --json found.json\n"
      "  qna detect detr.safetensors street.jpg -o found/ --attention");
  verb->callback([a] { run(*a); });
}

}  // namespace qna::cli
