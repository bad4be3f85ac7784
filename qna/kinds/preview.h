// What the previews of all kinds share.
#pragma once

#include <functional>

#include "qna/base/random.h"
#include "qna/image/image.h"
#include "qna/kinds/kind.h"

namespace qna::kinds {

// The places of the images that are shown, all over the data set.
std::vector<int64_t> places(const PreviewOptions& options, int64_t size);

// Small images are drawn larger, so that people can see them.
image::Image to_cell(const image::Image& image);

// Adds the image as the epochs of training see it; `augment` makes a cell of it with the random
// numbers that training has for it.
void add_epochs(Preview& preview, const PreviewOptions& options, const train::Recipe& recipe,
                int64_t index, const std::function<image::Image(Random&)>& augment);

}  // namespace qna::kinds
