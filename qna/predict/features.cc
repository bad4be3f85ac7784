#include "qna/predict/features.h"

namespace qna::predict {
namespace {

// Takes one map, or one vector per image, and stops the network behind it.
class FeatureTaker : public engine::Visitor {
 public:
  FeatureTaker(FeatureKind kind, int64_t last_stage) : kind_(kind), last_stage_(last_stage) {}

  bool wants_stage(int64_t stage) override {
    return kind_ == FeatureKind::kMap && stage == last_stage_;
  }
  void stage(int64_t, const engine::MapView& map) override {
    take(map, {map.batch, map.height, map.width, map.features});
  }
  bool wants_pooled() override { return kind_ == FeatureKind::kPooled; }
  void pooled(const engine::MapView& pooled) override {
    take(pooled, {pooled.batch, pooled.features});
  }
  bool done() override { return !taken_.shape.empty(); }

  Features&& taken() { return std::move(taken_); }

 private:
  void take(const engine::MapView& map, std::vector<int64_t> shape) {
    taken_.shape = std::move(shape);
    taken_.values.assign(map.data, map.data + map.batch * map.height * map.width * map.features);
  }

  const FeatureKind kind_;
  const int64_t last_stage_;
  Features taken_;
};

}  // namespace

Features features(const engine::Model& model, const engine::Images& images, FeatureKind kind,
                  engine::Context& context) {
  FeatureTaker taker(kind, static_cast<int64_t>(model.classifier().stages.size()) - 1);
  model.classify(images, nullptr, context, &taker);
  return taker.taken();
}

}  // namespace qna::predict
