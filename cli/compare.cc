#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/image_loop.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/data/image_stream.h"
#include "qna/engine/model.h"
#include "qna/image/color.h"
#include "qna/image/read.h"
#include "qna/image/resize.h"
#include "qna/image/write_png.h"
#include "qna/predict/reconstruct.h"
#include "qna/report/comparison.h"
#include "qna/viz/contact_sheet.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

struct CompareArguments {
  std::vector<std::string> runs;
  std::vector<std::string> images;
  std::string out = "comparison.html";
  std::string sheet;  // PNG file; empty: none
};

constexpr int64_t kCell = 192;  // the least side of an image, so that its caption has room

image::Image enlarged(const image::Image& image) {
  const int64_t zoom = (kCell + image.width - 1) / image.width;
  return zoom <= 1 ? image
                   : image::resize(image, zoom * image.height, zoom * image.width,
                                   image::Filter::kBilinear);
}

image::Image in_columns(const std::vector<viz::Captioned>& cells, size_t columns) {
  return viz::contact_sheet(cells, {.columns = static_cast<int64_t>(columns), .title = {}});
}

// An image and what every run makes of it.
class Networks {
 public:
  explicit Networks(const std::vector<std::string>& runs) : names_(report::run_names(runs)) {
    for (const std::string& run : runs) {
      models_.push_back(engine::Model::open((fs::path(run) / "best.safetensors").string()));
      models_.back().auto_encoder();  // throws if it is none
    }
  }

  std::vector<viz::Captioned> look_at(const std::string& path, const image::Image& image) {
    std::vector<viz::Captioned> row;
    for (size_t i = 0; i < models_.size(); ++i) {
      const config::Preprocess& preprocess = models_[i].info().preprocess;
      const predict::Reconstructed result = predict::reconstruct(
          models_[i], image::to_channels(image, preprocess.channels()), preprocess, context_);
      if (i == 0) row.push_back({enlarged(result.original), fs::path(path).filename().string()});
      row.push_back({enlarged(result.made), fmt::format("{}, {:.1f} dB", names_[i], result.psnr)});
    }
    return row;
  }

 private:
  std::vector<std::string> names_;
  std::vector<engine::Model> models_;
  engine::Context context_;
};

void run_compare(const CompareArguments& a) {
  check(a.sheet.empty() || !a.images.empty(), "--sheet needs pictures: --images");
  report::TrainingReport page = report::compare_runs(a.runs);
  std::vector<viz::Captioned> cells;
  std::vector<std::string> paths;
  int64_t failed = 0;
  if (!a.images.empty()) {
    paths = data::find_images(a.images);
    Networks networks(a.runs);
    report::Gallery gallery{.title = "Reconstructions", .images = {}};
    const auto read = [](const std::string& path) { return image::read_image(path); };
    failed = for_each_image(paths, read, [&](size_t i, const image::Image& image, Progress&) {
      const std::vector<viz::Captioned> row = networks.look_at(paths[i], image);
      gallery.images.push_back({in_columns(row, row.size()), row.front().caption});
      cells.insert(cells.end(), row.begin(), row.end());
    });
    page.galleries.push_back(std::move(gallery));
  }
  report::write_report(a.out, page);
  fmt::print("{}\n", a.out);
  if (!a.sheet.empty() && !cells.empty()) {
    image::write_png(a.sheet, in_columns(cells, a.runs.size() + 1));
    fmt::print("{}\n", a.sheet);
  }
  check_all_used(failed, paths);
}

}  // namespace

void add_compare(Command program) {
  Command verb = program.verb("compare", "Curves of several training runs on one page");
  auto a = std::make_shared<CompareArguments>();
  verb.option("runs", a->runs, "Folders of runs").required().type_name("RUN");
  verb.option("-o,--out", a->out, "The page [comparison.html]").type_name("FILE");
  verb.option("--images", a->images,
              "Pictures that the runs, if they are auto-encoders, show side by side")
      .comma_separated()
      .one_value_each()
      .type_name("IMAGE");
  verb.option("--sheet", a->sheet, "PNG file for these pictures alone").type_name("FILE");
  verb.footer(
      "Examples:\n"
      "  qna compare runs/bccd_detr runs/bccd_detr_qna\n"
      "  qna compare runs/faces_* -o faces.html --images a.jpg,b.jpg --sheet faces.png");
  verb.callback([a] { run_compare(*a); });
}

}  // namespace qna::cli
