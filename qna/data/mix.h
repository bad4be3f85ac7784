// Mixup and CutMix: images of a batch mixed in pairs, and their targets with them.
#pragma once

#include <cstdint>

#include "qna/base/random.h"

namespace qna::data {

struct Mix {
  double mixup = 0;                // alpha of the Beta distribution; 0: no mixup
  double cutmix = 0;               // the same for CutMix
  double probability = 1;          // that a batch is mixed at all
  double switch_probability = .5;  // that it is CutMix, where both are wanted
  bool operator==(const Mix&) const = default;
};

void check_mix(const Mix& mix, const char* where);

// Neighbours 2i and 2i + 1 are mixed with each other, the last of an odd count with nothing: so
// pairs are the same however a batch is divided among processes, as long as shares are even.
// pixels[count, height, width, channels], targets[count, columns]. The batch's random numbers are
// the same on all processes.
void mix(float* pixels, float* targets, int64_t count, int64_t height, int64_t width,
         int64_t channels, int64_t columns, const Mix& options, Random& random);

}  // namespace qna::data
