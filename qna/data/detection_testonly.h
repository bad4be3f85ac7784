// Shared by the tests of detection data: small images and annotations of them in a folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "qna/data/detection_dataset.h"
#include "qna/image/write_png.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::data::testing {

using qna::testing::complaint;
using qna::testing::contains;

// Noise, each image another.
inline image::Image noise_image(int64_t number, int64_t height, int64_t width) {
  image::Image image = image::make_image(height, width, 3);
  uint32_t state = static_cast<uint32_t>(number * 7919 + 1);
  for (uint8_t& pixel : image.pixels) {
    state = state * 1664525u + 1013904223u;
    pixel = static_cast<uint8_t>(state >> 24);
  }
  return image;
}

// A COCO data set in the making: gt.json and the folder pictures.
class DetectionFolder {
 public:
  DetectionFolder() {
    std::filesystem::create_directories(images());
    truth = {{"images", nlohmann::json::array()},
             {"annotations", nlohmann::json::array()},
             {"categories", nlohmann::json::array()}};
    for (const int id : {3, 7, 90}) {  // with gaps
      truth["categories"].push_back({{"id", id}, {"name", "c" + std::to_string(id)}});
    }
  }

  std::string images() const { return folder_.path("pictures"); }
  std::string path(const std::string& name) const { return folder_.path(name); }

  void put(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }

  // With the annotated size.
  void add_image(int64_t id, int64_t height, int64_t width) {
    truth["images"].push_back({{"id", id},
                               {"file_name", std::to_string(id) + ".png"},
                               {"width", width},
                               {"height", height}});
  }

  // Its file. The size may be another.
  void write_image(int64_t id, int64_t height, int64_t width) const {
    image::write_png(path("pictures/" + std::to_string(id) + ".png"),
                     noise_image(id, height, width));
  }

  nlohmann::json& add_object(int64_t image_id, int category, const std::array<double, 4>& box) {
    auto& list = truth["annotations"];
    list.push_back({{"id", list.size() + 1},
                    {"image_id", image_id},
                    {"category_id", category},
                    {"bbox", box},
                    {"iscrowd", 0}});
    return list.back();
  }

  DetectionDatasetOptions options() const {
    put("gt.json", truth.dump());
    return {.images = images(), .annotations = path("gt.json")};
  }

  std::shared_ptr<const DetectionDataset> open() const {
    return std::make_shared<const DetectionDataset>(options());
  }

  nlohmann::json truth;

 private:
  qna::testing::TemporaryFolder folder_;
};

}  // namespace qna::data::testing
