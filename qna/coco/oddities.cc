#include "qna/coco/oddities.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

namespace qna::coco {

std::vector<Oddity> find_oddities(const Annotations& annotations) {
  Oddity no_area{"annotations have a box without area: they are not used in training", {}};
  Oddity outside{"annotations have a box outside the picture: they are not used in training", {}};
  Oddity beyond{"annotations have a box that reaches beyond the picture: training clips it", {}};
  Oddity ignored{"annotations say 'ignore' but are no crowd: only the evaluation counts them", {}};
  Oddity zero{"annotations have the id 0: what finds them counts as wrong, as in pycocotools", {}};
  Oddity no_size{"pictures do not say how large they are: boxes there cannot be clipped", {}};
  Oddity absent{"categories have no annotation: they have no average precision", {}};
  Oddity same_name{"categories have the name of another one", {}};

  std::vector<bool> occurs(annotations.categories.size());
  for (const Annotation& annotation : annotations.annotations) {
    occurs[annotation.category] = true;
    if (annotation.id == 0) zero.ids.push_back(0);
    if (annotation.ignore && !annotation.crowd) ignored.ids.push_back(annotation.id);
    const Image& image = annotations.images[annotation.image];
    const Box& box = annotation.box;
    if (box.width == 0 || box.height == 0) {
      no_area.ids.push_back(annotation.id);
    } else if (image.width > 0 && image.height > 0) {
      const auto width = static_cast<double>(image.width);
      const auto height = static_cast<double>(image.height);
      // Boxes of COCO itself end some hundredths of a pixel outside; that is rounding.
      constexpr double kRounding = 0.1;
      if (!clip(box, width, height).has_value()) {
        outside.ids.push_back(annotation.id);
      } else if (std::min(box.x, box.y) < -kRounding || box.x + box.width > width + kRounding ||
                 box.y + box.height > height + kRounding) {
        beyond.ids.push_back(annotation.id);
      }
    }
  }
  for (const Image& image : annotations.images) {
    if (image.width == 0 || image.height == 0) no_size.ids.push_back(image.id);
  }
  std::set<std::string_view> names;
  for (size_t i = 0; i < annotations.categories.size(); ++i) {
    const Category& category = annotations.categories[i];
    if (!occurs[i]) absent.ids.push_back(category.id);
    if (!names.insert(category.name).second) same_name.ids.push_back(category.id);
  }

  std::vector<Oddity> all;
  for (Oddity* one :
       {&no_area, &outside, &beyond, &ignored, &zero, &no_size, &absent, &same_name}) {
    if (!one->ids.empty()) all.push_back(std::move(*one));
  }
  return all;
}

std::string to_text(const Oddity& oddity) {
  constexpr size_t kShown = 8;
  const auto shown = std::span(oddity.ids).first(std::min(oddity.ids.size(), kShown));
  return fmt::format("{} {} (ids {}{})", oddity.ids.size(), oddity.what, fmt::join(shown, ", "),
                     oddity.ids.size() > kShown ? ", ..." : "");
}

}  // namespace qna::coco
