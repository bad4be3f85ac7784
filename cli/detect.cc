#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "cli/image_loop.h"
#include "cli/input_size.h"
#include "cli/model_argument.h"
#include "cli/output_folder.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/coco/results.h"
#include "qna/data/image_stream.h"
#include "qna/format/text.h"
#include "qna/image/read.h"
#include "qna/image/write_png.h"
#include "qna/predict/detect.h"
#include "qna/predict/detection_images.h"
#include "qna/predict/evaluate.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

struct DetectArguments {
  std::string file;
  std::string weight_type;
  std::vector<std::string> images;
  std::string out;          // empty: no images
  std::string json;         // empty: no file
  std::string annotations;  // whose image ids the JSON gets
  double threshold = 0.5;
  int64_t size = 0;  // 0: as the file says
  bool attention = false;
  int threads = 0;  // 0: one per core
};

// The ids of images in COCO's JSON, and the sizes in whose pixels boxes are to be.
class ImageIds {
 public:
  // By the annotations; without them the numbers that the names are, as in COCO, if they all are
  // different numbers, or else the places in the list, from 1.
  ImageIds(const std::vector<std::string>& paths, const std::string& annotations) {
    if (annotations.empty()) {
      number(paths);
    } else {
      read(paths, annotations);
    }
  }

  const coco::Image& of(size_t place) const { return images_[place]; }

 private:
  void number(const std::vector<std::string>& paths) {
    std::set<int64_t> different;
    for (const std::string& path : paths) {
      const int64_t number = number_of(fs::path(path).stem().string());
      if (number > 0) different.insert(number);
      images_.emplace_back().id = number;
    }
    if (different.size() == paths.size()) return;
    for (size_t i = 0; i < paths.size(); ++i) images_[i].id = static_cast<int64_t>(i) + 1;
  }

  // 0: it is none.
  static int64_t number_of(const std::string& text) {
    int64_t number = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    return error == std::errc() && end == last && number > 0 ? number : 0;
  }

  void read(const std::vector<std::string>& paths, const std::string& annotations) {
    std::map<std::string, coco::Image> by_name;
    for (const coco::Image& image : coco::read_annotations(annotations).images) {
      if (image.file_name.empty()) continue;
      const std::string name = fs::path(image.file_name).filename().string();
      check(by_name.emplace(name, image).second,
            "{}: pictures are found by their names, but {} comes twice", annotations,
            format::in_quotes(name));
    }
    for (const std::string& path : paths) {
      const auto found = by_name.find(fs::path(path).filename().string());
      check(found != by_name.end(), "{}: --annotations has no picture of that name", path);
      images_.push_back(found->second);
    }
  }

  std::vector<coco::Image> images_;
};

class Detector {
 public:
  Detector(const DetectArguments& a, const std::vector<std::string>& paths)
      : arguments_(a),
        ids_(paths, a.annotations),
        model_(engine::Model::open(a.file, model_options(a.weight_type))),
        preprocess_(model_.info().preprocess),
        context_(a.threads) {
    model_.detector();  // or else it says what the file holds
    if (a.size > 0) set_shorter_side(preprocess_, a.size);
    if (!a.json.empty()) check_writable(a.json);
    if (!a.out.empty()) make_output_folder(a.out);
  }

  void look_at(const std::string& path, size_t place, const image::Image& image,
               Progress& progress) {
    const coco::Image& known = ids_.of(place);
    const predict::FoundObjects objects = predict::find_objects(
        model_, image, preprocess_, {.threshold = arguments_.threshold, .sorted = true}, context_,
        arguments_.attention);
    std::vector<predict::DrawnBox> boxes;
    for (const predict::Detection& found : objects.found) {
      boxes.push_back(predict::drawn_box(found, model_.info().labels));
      add_result(found, image, known);
    }
    progress.wipe();
    print(path, known.id, boxes);
    if (!arguments_.out.empty()) write_images(path, image, boxes, objects);
  }

  // All results so far, in COCO's format.
  void write_json() const {
    coco::write_results(arguments_.json, results_);
    fmt::print("{}\n", arguments_.json);
  }

 private:
  void add_result(const predict::Detection& found, const image::Image& image,
                  const coco::Image& known) {
    // The annotations may be of a larger copy of the file.
    const auto [height, width] = predict::annotated_size(known, {image.height, image.width});
    const double across = static_cast<double>(width) / static_cast<double>(image.width);
    const double down = static_cast<double>(height) / static_cast<double>(image.height);
    const double left = found.box[0] * across, right = found.box[2] * across;
    const double top = found.box[1] * down, bottom = found.box[3] * down;
    const std::vector<int64_t>& ids = model_.info().category_ids;
    results_.push_back({.image_id = known.id,
                        .category_id = ids.empty() ? found.label : ids[found.label],
                        .box = {left, top, right - left, bottom - top},
                        .score = found.score});
  }

  void print(const std::string& path, int64_t id,
             const std::vector<predict::DrawnBox>& boxes) const {
    fmt::print("{} (id {}): {} object{}\n", path, id, boxes.size(), boxes.size() == 1 ? "" : "s");
    for (const predict::DrawnBox& box : boxes) {
      fmt::print("  {:24}  x {:.0f} to {:.0f}, y {:.0f} to {:.0f}\n", format::printable(box.text),
                 box.box[0], box.box[2], box.box[1], box.box[3]);
    }
    std::fflush(stdout);
  }

  void write_images(const std::string& path, const image::Image& image,
                    const std::vector<predict::DrawnBox>& boxes,
                    const predict::FoundObjects& objects) {
    const std::string stem = (fs::path(arguments_.out) / stems_.of(path)).string();
    const auto write = [](const std::string& file, const image::Image& drawn) {
      image::write_png(file, drawn);
      fmt::print("  {}\n", file);
    };
    // The surest on top.
    write(stem + ".png", predict::draw_boxes(image, {boxes.rbegin(), boxes.rend()}));
    if (!arguments_.attention) return;
    for (size_t i = 0; i < boxes.size(); ++i) {
      write(fmt::format("{}.attention-{}.png", stem, i + 1),
            predict::draw_query_attention(image, objects.attention[i], objects.attention_stride,
                                          boxes[i]));
    }
  }

  const DetectArguments& arguments_;
  const ImageIds ids_;
  const engine::Model model_;
  config::Preprocess preprocess_;
  engine::Context context_;
  std::vector<coco::Detection> results_;
  UniqueStems stems_;
};

void run_detect(const DetectArguments& a) {
  check(!a.attention || !a.out.empty(), "--attention needs a folder for its pictures: --out");
  const std::vector<std::string> paths = find_pictures(a.images);
  Detector detector(a, paths);
  if (!a.out.empty()) check_keeps_images(a.out, paths);
  const int64_t failed = for_each_image(
      paths, [](const std::string& path) { return image::read_image(path); },
      [&](size_t i, const image::Image& image, Progress& progress) {
        detector.look_at(paths[i], i, image, progress);
      },
      a.threads);
  if (!a.json.empty()) detector.write_json();
  check_all_used(failed, paths);
}

}  // namespace

void add_detect(Command program) {
  Command verb = program.verb("detect", "Find objects in pictures");
  auto a = std::make_shared<DetectArguments>();
  add_pictures(verb, a->images, config::Kind::kDetector);
  verb.option("-o,--out", a->out, "Folder for pictures with boxes, made if need be")
      .type_name("FOLDER");
  verb.option("--json", a->json, "File for the detections in COCO's format").type_name("FILE");
  verb.option("--annotations", a->annotations,
              "COCO file that has the pictures' ids and sizes, by file name [ids are the\n"
              "numbers that the names are, or else places in the list]")
      .type_name("FILE");
  verb.option("--threshold", a->threshold, "Least score, 0 to 1 [0.5]").range(0.0, 1.0);
  verb.option("--size", a->size, "Shorter side to look at [as the weights file says]")
      .range(16, 8192);
  verb.flag("--attention", a->attention, "Also draw where the decoder looks for each object");
  add_engine_options(verb, a->threads, a->weight_type);
  verb.footer(
      "A picture that cannot be read is reported and does not stop the rest; the exit status then\n"
      "is 1. For `qna coco-eval`, write all detections: --threshold 0.\n\n"
      "Examples:\n"
      "  qna detect street.jpg -o found/\n"
      "  qna detect detr.safetensors pictures/ --threshold 0.8 --json found.json\n"
      "  qna detect detr.safetensors street.jpg -o found/ --attention");
  verb.callback([a] {
    a->file = take_weights(a->images, config::Kind::kDetector);
    run_detect(*a);
  });
}

}  // namespace qna::cli
