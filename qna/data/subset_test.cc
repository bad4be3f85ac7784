#include "qna/data/subset.h"

#include <algorithm>
#include <cmath>

#include "qna/data/dataset_testonly.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;

// Labels and nothing more.
class Labels final : public Dataset {
 public:
  Labels(std::vector<int64_t> labels, int64_t classes) : labels_(std::move(labels)) {
    for (int64_t i = 0; i < classes; ++i) classes_.push_back(std::to_string(i));
  }
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t index) const override { return labels_.at(index); }
  std::string name(int64_t index) const override { return fmt::format("p{}", index); }
  image::Image read(int64_t index, int64_t) const override {
    return plain_image(static_cast<uint8_t>(index));
  }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  std::vector<int64_t> labels_;
  std::vector<std::string> classes_;
};

// Class 0 has 40 images, class 1 has 21, class 2 has 1, class 3 none, all mixed up.
std::shared_ptr<const Dataset> uneven() {
  std::vector<int64_t> labels(62, 0);
  for (int64_t i = 0; i < 21; ++i) labels[i * 2 + 1] = 1;
  labels[50] = 2;
  return std::make_shared<Labels>(labels, 4);
}

TEST(Subset, IsTheImagesAtTheIndices) {
  const Subset subset(uneven(), {50, 1, 0, 1});
  EXPECT_EQ(content_of(subset), (Content{{50, 2}, {1, 1}, {0, 0}, {1, 1}}));
  EXPECT_EQ(subset.name(0), "p50");
  EXPECT_EQ(subset.classes().size(), 4u);
  EXPECT_THROW(subset.label(4), Error);
  EXPECT_THROW(subset.read(-1, 3), Error);
  EXPECT_THROW(Subset(uneven(), {62}), Error);
  EXPECT_THROW(Subset(uneven(), {-1}), Error);
  EXPECT_THROW(Subset(nullptr, {}), Error);
}

TEST(SplitDataset, TakesTheShareOfEveryClass) {
  const auto whole = uneven();
  for (const double fraction : {0.05, 0.1, 0.25, 0.5, 0.9, 0.99}) {
    const Split split = split_dataset(whole, fraction, 3);
    std::vector<int64_t> all = split.train->indices();
    all.insert(all.end(), split.val->indices().begin(), split.val->indices().end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), 62u);  // each once
    for (int64_t i = 0; i < 62; ++i) EXPECT_EQ(all[i], i);
    EXPECT_TRUE(std::is_sorted(split.train->indices().begin(), split.train->indices().end()));
    EXPECT_TRUE(std::is_sorted(split.val->indices().begin(), split.val->indices().end()));
    const std::vector<int64_t> counts = {40, 21, 1, 0};
    for (int64_t label = 0; label < 4; ++label) {
      const auto has_label = [&](int64_t index) { return whole->label(index) == label; };
      const auto& val = split.val->indices();
      EXPECT_EQ(std::count_if(val.begin(), val.end(), has_label),
                std::max<int64_t>(
                    0, std::min<int64_t>(counts[label] - 1, std::lround(counts[label] * fraction))))
          << fraction << " of class " << label;
    }
  }
}

TEST(SplitDataset, IsAFunctionOfTheSeed) {
  const Split one = split_dataset(uneven(), 0.3, 1);
  EXPECT_EQ(one.val->indices(), split_dataset(uneven(), 0.3, 1).val->indices());
  EXPECT_NE(one.val->indices(), split_dataset(uneven(), 0.3, 2).val->indices());
}

TEST(SplitDataset, Mistakes) {
  for (const double fraction : {0.0, 1.0, -0.5, std::nan("")}) {
    EXPECT_TRUE(contains(complaint([&] { split_dataset(uneven(), fraction, 0); }),
                         "val_fraction must be above 0 and below 1"));
  }
  EXPECT_TRUE(contains(complaint([&] { split_dataset(uneven(), 0.001, 0); }), "leaves none"));
  EXPECT_THROW(split_dataset(nullptr, 0.5, 0), Error);
}

TEST(Relabelled, LabelsArePlacesInTheNames) {
  const auto whole = std::make_shared<Labels>(std::vector<int64_t>{0, 1, 2, 1}, 3);
  const auto other = relabelled(whole, {"2", "x", "0", "1"});
  EXPECT_EQ(content_of(*other), (Content{{0, 2}, {1, 3}, {2, 0}, {3, 3}}));
  EXPECT_EQ(other->classes(), (Names{"2", "x", "0", "1"}));
  EXPECT_EQ(complaint([&] {
              relabelled(whole, {"0", "1"});
            }),
            "relabelled: the class '2' is not among the names");
}

TEST(Fingerprint, TellsLabelsAndNamesApart) {
  const auto of = [](std::vector<int64_t> labels) { return fingerprint(Labels(labels, 3)); };
  EXPECT_EQ(of({0, 1, 2}).size(), 16u);
  EXPECT_EQ(of({0, 1, 2}), of({0, 1, 2}));
  EXPECT_NE(of({0, 1, 2}), of({0, 2, 1}));
  EXPECT_NE(of({0, 1}), of({0, 1, 1}));
}

}  // namespace
}  // namespace qna::data
