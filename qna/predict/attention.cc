#include "qna/predict/attention.h"

#include <set>

namespace qna::predict {
namespace {

class AttentionTaker : public engine::Visitor {
 public:
  AttentionTaker(std::set<std::string> wanted, const AttentionOptions& options)
      : wanted_(std::move(wanted)), options_(options) {}

  bool wants_attention(const engine::AttentionLayer& layer) override {
    return wanted_.contains(layer.name);
  }
  int64_t kernel_side() override { return options_.kernel_side; }
  bool wants_scores() override { return options_.scores; }
  void attention(engine::LayerAttention&& attention) override {
    taken_.push_back(std::move(attention));
  }
  bool done() override { return taken_.size() == wanted_.size(); }

  std::vector<engine::LayerAttention>&& taken() { return std::move(taken_); }

 private:
  const std::set<std::string> wanted_;
  const AttentionOptions& options_;
  std::vector<engine::LayerAttention> taken_;
};

}  // namespace

std::vector<engine::LayerAttention> attention_of(const engine::Model& model,
                                                 const engine::Images& images,
                                                 const AttentionOptions& options,
                                                 engine::Context& context) {
  std::set<std::string> wanted;
  for (const std::string& name : options.layers) {
    wanted.insert(engine::find_attention_layer(model, name).name);
  }
  if (wanted.empty()) return {};
  AttentionTaker taker(std::move(wanted), options);
  if (model.kind() == engine::Kind::kDetector) {
    model.detect(images, {}, context, &taker);
  } else {
    model.classify(images, nullptr, context, &taker);
  }
  return taker.taken();
}

}  // namespace qna::predict
