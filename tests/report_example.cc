// Writes what the tests of qna/report read back with other means, into the folder that is given:
//   events/        two event files: a run, and the same run resumed at step 60
//   report.html    the report of a run that could have been
//   hostile.html   a report whose every text is hostile and whose every number is odd
//   *.svg          charts on their own
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <string>

#include "qna/base/file.h"
#include "qna/report/event_file.h"
#include "qna/report/machine.h"
#include "qna/report/training_report.h"
#include "qna/viz/draw.h"

namespace qna::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The same bytes as pixel() of tensorboard_test.py.
image::Image pattern(int64_t height, int64_t width, int64_t channels) {
  image::Image image = image::make_image(height, width, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(i * 7 % 251);
  }
  return image;
}

// loss = 2.5 / (1 + step), as tensorboard_test.py expects. Steps from 60 on are written as 0 first
// and rightly by the resumed run.
void write_events(const std::string& folder) {
  EventFile first(folder);
  for (int64_t step = 0; step < 80; ++step) {
    first.scalar("train/loss", step, step < 60 ? 2.5 / static_cast<double>(1 + step) : 0);
  }
  first.scalar("odd/nan", 1, kNan);
  first.scalar("odd/infinity", 2, -kInfinity);
  first.scalar("odd/large step", int64_t{1} << 40, 1e30);
  first.text("recipe", 0, "# Title\n\n`lr = 0.1` \xc3\xa4 <b>");
  first.text("empty", 0, "");
  first.image("picture/colour", 5, pattern(9, 7, 3));
  first.image("picture/grey", 6, pattern(200, 3, 1));
  first.flush();

  EventFile second(folder, 60);
  for (int64_t step = 60; step < 100; ++step) {
    second.scalar("train/loss", step, 2.5 / static_cast<double>(1 + step));
  }
}

Curve curve(const std::string& name, int64_t points, auto&& value) {
  Curve result{name, {}, {}};
  for (int64_t i = 0; i < points; ++i) {
    result.x.push_back(static_cast<double>(i));
    result.y.push_back(value(static_cast<double>(i)));
  }
  return result;
}

// A ball before a sky, so that there is something to see.
image::Image ball(int64_t side, double hue) {
  image::Image image = image::make_image(side, side, 3);
  const double centre = 0.5 + 0.15 * std::sin(5 * hue), radius = 0.25 + 0.1 * std::cos(9 * hue);
  for (int64_t y = 0; y < side; ++y) {
    for (int64_t x = 0; x < side; ++x) {
      const double u = (static_cast<double>(x) + 0.5) / static_cast<double>(side);
      const double v = (static_cast<double>(y) + 0.5) / static_cast<double>(side);
      const bool inside = std::hypot(u - centre, v - 0.55) < radius;
      for (int64_t c = 0; c < 3; ++c) {
        const double wave = 0.5 + 0.5 * std::cos(6.28 * (hue + static_cast<double>(c) / 3));
        const double light = inside ? 0.25 + 0.7 * wave * (1.2 - v) : 0.55 + 0.35 * (1 - v) * u;
        image.row(y)[3 * x + c] = static_cast<uint8_t>(255 * std::min(1.0, light));
      }
    }
  }
  return image;
}

viz::Captioned attention(double hue, const std::string& caption) {
  const image::Image image = ball(224, hue);
  viz::HeatMap map = viz::make_heat_map(224, 224);
  for (int64_t y = 0; y < 224; ++y) {
    for (int64_t x = 0; x < 224; ++x) {
      map.at(y, x) = static_cast<float>(
          std::exp(-(std::pow((x - 112) / 60.0, 2) + std::pow((y - 123) / 50.0, 2))));
    }
  }
  return {viz::overlay(image, map, {}, viz::Palette::kViridis, 0.6), caption};
}

// Windows of 3 x 3 on a map of 7 x 7 that look up and to the left.
Explorer explorer_of(const image::Image& image, const std::string& name) {
  ExplorerWindows windows{.kernel = {3, 3}, .padding = {1, 1}, .windows = {7, 7}};
  for (int i = 0; i < 7 * 7 * 2; ++i) {
    windows.scores.push_back(static_cast<float>(i % 2) - 0.05f * static_cast<float>(i));
  }
  return {.name = name,
          .image = image,
          .seen = {224, 224},
          .classes = {{name, 0.75}},
          .layers = {{.name = name,
                      .stride = 32,
                      .height = 7,
                      .width = 7,
                      .heads = 2,
                      .attention = std::move(windows)}},
          .notes = {name}};
}

Confusion confusion_of(std::vector<std::string> classes, std::mt19937& random) {
  Confusion confusion{std::move(classes), {}};
  const auto count = static_cast<int64_t>(confusion.classes.size());
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < count; ++k) {
      const auto off = static_cast<int64_t>(random() % 40);
      confusion.counts.push_back(i == k ? 880 + off : off > 24 ? off - 24 : 0);
    }
  }
  return confusion;
}

TrainingReport good_report() {
  std::mt19937 random(1);
  const auto noise = [&] { return static_cast<double>(random() % 1000) / 1000 - 0.5; };
  TrainingReport report;
  report.title = "qna-tiny on ten kinds of small pictures";
  report.summary = {{"Top-1 accuracy", "93.4%"},
                    {"Best epoch", "57 of 60"},
                    {"Images per second", "1,240"},
                    {"Time", "2 h 51 min"},
                    {"Parameters", "1.9 M"}};
  report.notes = {"Resumed once, at step 12,000.",
                  "Weights are the moving average with decay 0.9998."};
  report.charts = {
      {.title = "Loss",
       .x_label = "epoch",
       .curves = {curve(
                      "training", 60 * 400,
                      [&](double i) { return 0.35 + 2.1 * std::exp(-i / 5000) + 0.25 * noise(); }),
                  curve("validation", 60,
                        [&](double i) { return 0.3 + 2 * std::exp(-i / 9) + 0.03 * noise(); })}},
      {.title = "Accuracy",
       .x_label = "epoch",
       .y_label = "%",
       .curves = {curve("weights", 60,
                        [&](double i) { return 92.5 - 60 * std::exp(-i / 8) + 1.5 * noise(); }),
                  curve("moving average", 60,
                        [&](double i) { return 93.4 - 70 * std::exp(-i / 9); })}},
      {.title = "Learning rate",
       .x_label = "epoch",
       .curves = {curve("rate", 60,
                        [](double i) {
                          return i < 5 ? 1e-3 * (i + 1) / 5
                                       : 1e-5 + 5e-4 * (1 + std::cos(3.14159 * (i - 5) / 55));
                        })},
       .y_scale = Scale::kLog},
      {.title = "Gradient norm", .x_label = "step", .y_label = "norm", .y_scale = Scale::kLog}};
  for (double& x : report.charts[0].curves[0].x) x /= 400;
  for (int i = 0; i < 9; ++i) {
    report.charts[3].curves.push_back(curve("stage " + std::to_string(i), 300, [&](double step) {
      return std::exp(0.6 * i + 2 * std::exp(-step / 60) + 0.3 * noise());
    }));
  }
  report.confusion = confusion_of(
      {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
      random);
  for (int i = 0; i < 16; ++i) {
    const bool right = i % 5 != 3;
    report.samples.push_back({ball(32, i / 16.0), report.confusion.classes[i % 10],
                              report.confusion.classes[right ? i % 10 : (i + 3) % 10],
                              right ? 0.97 - 0.02 * i : 0.48, right});
  }
  for (int i = 0; i < 3; ++i) {
    report.attention.push_back(attention(i / 3.0, "head " + std::to_string(i) + " of stage 3"));
  }
  report.explorer = explorer_of(ball(224, 0.3), "automobile");
  report.recipe =
      "model = \"qna-tiny\"\nepochs = 60\nbatch = 128\n\n[optimizer]\nname = \"adamw\"\n"
      "rate = 1e-3          # at batch 512\nweight_decay = 0.05\n";
  report.machine = describe({"Example CPU at 3.0 GHz", 16, int64_t{64} << 30,
                             "Debian GNU/Linux 12, Linux 6.1, x86_64", "GCC 12.2.0"});
  return report;
}

TrainingReport hostile_report() {
  const std::string evil =
      "<script>alert(\"1\")</script>'&amp;\x01\xff\xed\xa0\x80 ]]> --> </style></svg></pre>";
  TrainingReport report;
  report.title = evil;
  report.summary = {{evil, evil}};
  report.charts = {
      {.title = evil,
       .x_label = evil,
       .y_label = evil,
       .curves = {{evil, {0, 1, 2, 3, 4, kNan, 6}, {1, kNan, 3, kInfinity, 5, 6, 7}},
                  {evil, {}, {}}}},
      {.title = "empty"},
      {.title = "nothing finite", .curves = {{"a", {0, 1}, {kNan, kNan}}}},
      {.title = "one point", .curves = {{"a", {3}, {0.5}}}},
      {.title = "huge", .curves = {{"a", {-1e308, 1e308}, {-1e308, 1e308}}, {"b", {0}, {5e-324}}}},
      {.title = "huge, logarithmic",
       .curves = {{"a", {1e-320, 1, 1e308}, {5e-324, 0, 1.7e308}}, {"b", {1, 2}, {1, -1}}},
       .x_scale = Scale::kLog,
       .y_scale = Scale::kLog}};
  report.confusion = {{evil, evil}, {3, INT64_MAX, INT64_MAX, INT64_MAX}};
  report.samples = {{pattern(1, 1, 1), evil, evil, kNan, false},
                    {pattern(3000, 2, 3), evil, evil, 1, true}};
  report.attention = {{pattern(5, 4, 3), evil}};
  report.explorer = explorer_of(pattern(5, 4, 3), evil);
  report.recipe = evil;
  report.machine = {{evil, evil}};
  report.notes = {evil, ""};
  return report;
}

void write_all(const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_events(folder + "/events");
  const TrainingReport good = good_report();
  TrainingReport hostile = hostile_report();
  write_report(folder + "/report.html", good);
  write_report(folder + "/hostile.html", hostile);
  for (size_t i = 0; i < good.charts.size(); ++i) {
    write_file(folder + "/good" + std::to_string(i) + ".svg", to_svg(good.charts[i]));
  }
  for (size_t i = 0; i < hostile.charts.size(); ++i) {
    write_file(folder + "/hostile" + std::to_string(i) + ".svg", to_svg(hostile.charts[i]));
  }
  std::mt19937 random(2);
  for (const int classes : {2, 30, 31, 100}) {
    TrainingReport report{.title = std::to_string(classes) + " classes"};
    std::vector<std::string> names;
    for (int i = 0; i < classes; ++i)
      names.push_back("class with a long name " + std::to_string(i));
    report.confusion = confusion_of(names, random);
    write_report(folder + "/classes" + std::to_string(classes) + ".html", report);
  }
}

}  // namespace
}  // namespace qna::report

int main(int, char** arguments) { qna::report::write_all(arguments[1]); }
