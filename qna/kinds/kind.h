// What can be done with a network of each kind, whatever kind it is: a row each. What only some
// kinds can do, such as finding objects, is in predict/.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qna/engine/model.h"
#include "qna/recipe/recipe.h"
#include "qna/viz/contact_sheet.h"

namespace qna::kinds {

// ---- measuring a weights file on a data set ----

struct EvaluateOptions {
  std::string data;  // a data set of labels, or a folder of images
  // Of a data set of labels. Nothing: the images that training held back where the file tells which
  // (data.val_fraction), or else "val".
  std::optional<std::string> split = {};
  int64_t batch = 0;                 // 0: as the kind likes it
  int workers = 0;                   // that read images; 0: one per core
  int threads = 0;                   // that compute; 0: one per core
  bool skip_broken = false;          // otherwise an image that cannot be read is an error
  int64_t last = 0;                  // of a folder of images: only the last so many; 0: all
  std::string annotations;           // the objects in a folder of images
  std::string results;               // a file for what was found, in COCO's format; empty: none
  std::vector<int64_t> shifts = {};  // of a classifier: also with images moved by so many pixels
};

struct Measured {
  struct Number {
    std::string name;  // "top1"
    double value;
    std::string line;  // the same for people: "top-1   93.20 %"; empty: not for them
  };
  // The same of one class.
  struct Class {
    std::string name;
    int64_t count = 0;                 // of images, or of objects
    std::vector<Number> numbers = {};  // line: unused
  };
  int64_t images = 0;
  std::vector<Number> numbers = {};      // the most important first
  std::vector<Class> classes = {};       // those that occur
  const char* counted = "pictures";      // what a class counts
  std::vector<std::string> broken = {};  // images that were left out, a line each
};

// Calls for those who watch.
struct EvaluateWatcher {
  std::function<void(int64_t done, int64_t total)> images = [](int64_t, int64_t) {};
  // What people should know before they believe the numbers.
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

// ---- looking at what a recipe trains on ----

struct PreviewOptions {
  int64_t images = 6;    // rows
  int64_t variants = 7;  // columns, one per epoch, where images are augmented
  int64_t epoch = 0;     // the first of them
};

// Rows of cells: an image as in validation, then as in some epochs of training.
struct Preview {
  std::vector<viz::Captioned> cells = {};
  int64_t columns = 0;  // 0: as it fits
  std::string title = {}, subtitle = {};
};

// ---- what a recipe will train ----

struct Plan {
  config::NetworkConfig network;
  int64_t images = 0;  // of an epoch
  std::array<int64_t, 2> size = {0,
                                 0};  // of an image, height and width; 0: the network's usual one
};

// ---- the table ----

struct KindRow {
  config::Kind kind;
  const char* task;  // in recipes: "classification"
  // Throws qna::Error for options that make no sense for the kind.
  Measured (*evaluate)(const engine::Model& model, const EvaluateOptions& options,
                       const EvaluateWatcher& watcher);
  Preview (*preview)(const train::Recipe& recipe, const PreviewOptions& options);
  // Opens the data, whose classes decide the head. Throws as training would.
  Plan (*plan)(const train::Recipe& recipe);
  // Runs the network once, for who measures it; what it says is thrown away.
  void (*run)(const engine::Model& model, const engine::Images& images, engine::Context& context);
  // Lines about a network that its list of layers does not show.
  std::vector<std::string> (*remarks)(const config::NetworkConfig& config);
};

std::span<const KindRow> all_kinds();
const KindRow& row_of(config::Kind kind);
// By the name that a recipe gives its task. Throws qna::Error that lists the names.
const KindRow& row_of_task(const std::string& task);

// The rows, each in a file of its own.
KindRow classifier();
KindRow detector();
KindRow auto_encoder();

}  // namespace qna::kinds
