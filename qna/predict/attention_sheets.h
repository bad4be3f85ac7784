// Images of where a network looks.
#pragma once

#include <string>
#include <vector>

#include "qna/engine/visitor.h"
#include "qna/image/image.h"

namespace qna::predict {

struct SheetStyle {
  std::vector<int64_t> heads = {};  // empty: all
  double opacity = 0.6;             // of the maps over the image
  int64_t cell = 320;               // longer side of each image on the sheet, in pixels
  bool weighted = false;            // the queries' learned mix instead of their mean attention
  bool shared_scale = false;        // one range of colours for all heads
  std::string says = {};            // what the model says of the image, see say(); empty: nothing
};

// The lines above a sheet: of what image and layer it is, what the model says, what is shown and
// what its numbers mean.
std::vector<std::string> sheet_title(const std::string& name,
                                     const engine::LayerAttention& attention,
                                     const SheetStyle& style, bool kernels = false);

// For AttentionOptions::kernel_side: 48 kernels of 3 x 3, or 20 of 7 x 7.
inline constexpr int64_t kKernelSide = 144;

// The image, the mean over the heads and every head's summed attention over the image. `image` is
// what the network saw, in three channels; the attention is that of image 0 of its batch.
image::Image attention_sheet(const image::Image& image, const std::string& name,
                             const engine::LayerAttention& attention, const SheetStyle& style);

// The image and every head's kernels side by side. There must be kernels.
image::Image kernel_sheet(const image::Image& image, const std::string& name,
                          const engine::LayerAttention& attention, const SheetStyle& style);

}  // namespace qna::predict
