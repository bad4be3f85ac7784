// QnA's rivals as layers of a block: SASA, HaloNet, convolutions. Right, not fast.
#pragma once

#include <memory>

#include "qna/config/layers.h"
#include "qna/engine/layers.h"

namespace qna::engine {

class Mixer {
 public:
  virtual ~Mixer() = default;
  // y = mixer(norm(x)), with y's size as the stride makes it. What the mask hides counts as 0.
  virtual void run(const Map& x, const Map& y, Mask mask, Worker& worker) const = 0;
  virtual size_t bytes() const = 0;
};

std::unique_ptr<const Mixer> make_mixer(const Tensors& tensors, const config::MixerOptions& options,
                                        const NormWeights& norm);

// NesT's down-sampling, also by itself: 3 x 3 convolution, LayerNorm, max-pooling.
class ConvPool {
 public:
  ConvPool(const Tensors& tensors, const config::ConvPoolOptions& options);
  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const;
  size_t bytes() const { return conv_.weights.bytes(); }

 private:
  Convolution conv_;
  NormWeights norm_;
};

// 3 x 3 max-pooling with stride 2 to half the size, rounded up. Padding lies at the bottom and
// right, where JAX's 'SAME' puts it for even sizes. Places without an image become 0.
void max_pool_by_two(const Map& x, const Map& y, Mask mask, Worker& worker);

}  // namespace qna::engine
