#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/checkpoint/auto_encoder_file.h"
#include "qna/data/image_stream.h"
#include "qna/image/read.h"
#include "qna/image/write_png.h"
#include "qna/tasks/reconstruct.h"
#include "qna/train/comparison.h"
#include "qna/viz/contact_sheet.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> runs;
  std::vector<std::string> images;
  std::string out = "comparison.html";
  std::string sheet;  // PNG file; empty: none
};

// Each picture and what every run makes of it, a row per picture.
image::Image reconstruction_sheet(const Arguments& a) {
  std::vector<checkpoint::LoadedAutoEncoder> loaded;
  for (const std::string& run : a.runs) {
    loaded.push_back(checkpoint::load_auto_encoder((fs::path(run) / "best.safetensors").string()));
  }
  std::vector<viz::Captioned> pictures;
  for (const std::string& path : data::find_images(a.images)) {
    for (size_t i = 0; i < loaded.size(); ++i) {
      const data::Preprocess& preprocess = loaded[i].info.preprocess;
      const image::Image photo = image::read_image(path, {.channels = preprocess.channels()});
      const tasks::Reconstructed result = tasks::reconstruct(loaded[i].model, photo, preprocess);
      if (i == 0) pictures.push_back({result.original, fs::path(path).stem().string()});
      pictures.push_back({result.made, fmt::format("{:.1f} dB", result.psnr)});
    }
  }
  std::string order = "original";
  for (const std::string& run : a.runs) {
    order += ", " + fs::path(run).lexically_normal().filename().string();
  }
  return viz::contact_sheet(pictures,
                            {.columns = static_cast<int64_t>(a.runs.size()) + 1, .title = {order}});
}

void run(const Arguments& a) {
  check(a.sheet.empty() || !a.images.empty(), "--sheet needs pictures: --images");
  std::vector<viz::Captioned> pictures;
  if (!a.images.empty()) {
    pictures.push_back({reconstruction_sheet(a), "PSNR of each reconstruction"});
  }
  train::write_comparison(a.out, a.runs, pictures);
  fmt::print("{}\n", a.out);
  if (a.sheet.empty()) return;
  image::write_png(a.sheet, pictures[0].picture);
  fmt::print("{}\n", a.sheet);
}

}  // namespace

void add_compare(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("compare", "Curves of several training runs on one page");
  auto a = std::make_shared<Arguments>();
  verb->add_option("runs", a->runs, "Folders of runs")->required()->type_name("RUN");
  verb->add_option("-o,--out", a->out, "The page [comparison.html]")->type_name("FILE");
  verb->add_option("--images", a->images,
                   "Pictures that the runs, if they are auto-encoders, show side by side")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("IMAGE");
  verb->add_option("--sheet", a->sheet, "PNG file for these pictures alone")->type_name("FILE");
  verb->footer(
      "Examples:\n"
      "  qna compare runs/bccd_detr runs/bccd_detr_qna\n"
      "  qna compare runs/faces_* -o faces.html --images a.jpg,b.jpg --sheet faces.png");
  verb->callback([a] { run(*a); });
}

}  // namespace qna::cli
