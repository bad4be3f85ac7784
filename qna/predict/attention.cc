#include "qna/predict/attention.h"

#include <set>

namespace qna::predict {
namespace {

class AttentionTaker : public engine::Visitor {
 public:
  AttentionTaker(std::set<std::string> wanted, int64_t kernel_side)
      : wanted_(std::move(wanted)), kernel_side_(kernel_side) {}

  bool wants_attention(const engine::AttentionLayer& layer) override {
    return wanted_.contains(layer.name);
  }
  int64_t kernel_side() override { return kernel_side_; }
  void attention(engine::LayerAttention&& attention) override {
    taken_.push_back(std::move(attention));
  }
  bool done() override { return taken_.size() == wanted_.size(); }

  std::vector<engine::LayerAttention>&& taken() { return std::move(taken_); }

 private:
  const std::set<std::string> wanted_;
  const int64_t kernel_side_;
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
  AttentionTaker taker(std::move(wanted), options.kernel_side);
  model.classify(images, nullptr, context, &taker);
  return taker.taken();
}

}  // namespace qna::predict
