#include "qna/predict/input.h"

namespace qna::predict {

Input::Input(const image::Image& seen, const config::Preprocess& preprocess)
    : height_(seen.height), width_(seen.width), pixels_(seen.pixels.size()) {
  data::to_floats(seen, preprocess, pixels_.data());
}

}  // namespace qna::predict
