// The named detectors: an explicit list.
#pragma once

#include <span>
#include <string_view>

#include "qna/config/detr.h"

namespace qna::config {

struct DetectorEntry {
  const char* name;
  const char* summary;
  DetrConfig config;
  int64_t parameters;  // exact
  double paper_ap;     // percent on COCO 2017, 75 epochs; 0: not in the paper
};

std::span<const DetectorEntry> detectors();

// Throws qna::Error that lists the names if there is none of that name.
const DetectorEntry& find_detector(std::string_view name);

}  // namespace qna::config
