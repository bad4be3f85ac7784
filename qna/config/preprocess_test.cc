#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/config/preprocess.h"

namespace qna::config {
namespace {

using nlohmann::json;

std::string complaint(const std::string& text) {
  try {
    preprocess_from_json(json::parse(text), "p.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PreprocessJson, ThereAndBack) {
  for (const Preprocess& p : {Preprocess{}, Preprocess{.resize = 0, .crop = {0, 0}},
                              Preprocess{.resize = 800, .longest = 1333, .crop = {0, 0}},
                              Preprocess{.resize = 32,
                              .crop = {28, 30},
                              .filter = image::Filter::kBilinear,
                              .mean = {1.0f / 3},
                              .std = {1e-7f}}}) {
    EXPECT_EQ(preprocess_from_json(json::parse(to_json(p).dump()), "text"), p);
  }
}

TEST(PreprocessJson, IsWrittenInShort) {
  EXPECT_EQ(to_json(Preprocess{}).dump(),
            R"({"crop":[224,224],"filter":"bicubic","mean":[0.485,0.456,0.406],"resize":256,)"
            R"("std":[0.229,0.224,0.225]})");
  EXPECT_EQ(to_json(Preprocess{.longest = 500})["longest"], 500);
}

TEST(PreprocessJson, WhatIsLeftOutKeepsItsDefault) {
  EXPECT_EQ(preprocess_from_json(json::object(), "text"), Preprocess{});
  EXPECT_EQ(preprocess_from_json({{"resize", 100}}, "text"), Preprocess{.resize = 100});
}

TEST(PreprocessJson, ErrorsNameTheKey) {
  EXPECT_EQ(complaint(R"([1])"), "p.json: preprocess must be an object, got [1]");
  EXPECT_EQ(complaint(R"({"Resize": 1})"),
            "p.json: unknown key 'Resize'; the keys are resize, longest, crop, filter, mean, std");
  EXPECT_EQ(complaint(R"({"resize": "256"})"), "p.json: resize must be an integer, got \"256\"");
  EXPECT_EQ(complaint(R"({"resize": 2.5})"), "p.json: resize must be an integer, got 2.5");
  EXPECT_EQ(complaint(R"({"resize": true})"), "p.json: resize must be an integer, got true");
  EXPECT_EQ(complaint(R"({"resize": 18446744073709551615})"),
            "p.json: resize must be an integer, got 18446744073709551615");
  EXPECT_EQ(complaint(R"({"longest": 2.5})"), "p.json: longest must be an integer, got 2.5");
  EXPECT_EQ(complaint(R"({"crop": 224})"),
            "p.json: crop must be an array of two integers, got 224");
  EXPECT_EQ(complaint(R"({"crop": [1, 2, 3]})"),
            "p.json: crop must be an array of two integers, got [1,2,3]");
  EXPECT_EQ(complaint(R"({"crop": [1, null]})"), "p.json: crop must be an integer, got null");
  EXPECT_EQ(complaint(R"({"filter": "lanczos"})"),
            "p.json: filter must be \"bilinear\" or \"bicubic\", got \"lanczos\"");
  EXPECT_EQ(complaint(R"({"filter": 1})"),
            "p.json: filter must be \"bilinear\" or \"bicubic\", got 1");
  EXPECT_EQ(complaint(R"({"mean": 0.5})"), "p.json: mean must be an array of numbers, got 0.5");
  EXPECT_EQ(complaint(R"({"std": [1, "x", 1]})"),
            "p.json: std must be an array of numbers, got [1,\"x\",1]");
  EXPECT_EQ(complaint(R"({"mean": [0.5]})"),
            "p.json: std must have as many numbers as mean, 1, got 3");
  EXPECT_EQ(complaint(R"({"resize": -5})"), "p.json: resize must be in [0, 16777216], got -5");
  EXPECT_NE(complaint(R"({"mean": [1e300, 0, 0]})"), "");  // no float
}

}  // namespace
}  // namespace qna::config
