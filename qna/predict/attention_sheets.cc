#include "qna/predict/attention_sheets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "qna/base/error.h"
#include "qna/image/resize.h"
#include "qna/viz/contact_sheet.h"
#include "qna/viz/draw.h"

namespace qna::predict {
namespace {

using engine::AttentionKernels;
using engine::AttentionMaps;
using engine::LayerAttention;
using image::Image;
using viz::Captioned;
using viz::HeatMap;
using viz::Palette;
using viz::Range;

// The numbers of one head of image 0, [count], from [L, heads, count]: the mean over L.
std::vector<float> mean_of_queries(const std::vector<float>& numbers, int64_t queries,
                                   int64_t heads, int64_t count, int64_t head) {
  std::vector<float> mean(count);
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int64_t l = 0; l < queries; ++l) sum += numbers[(l * heads + head) * count + i];
    mean[i] = static_cast<float>(sum / static_cast<double>(queries));
  }
  return mean;
}

HeatMap summed_map(const AttentionMaps& maps, int64_t head, bool weighted) {
  HeatMap map = viz::make_heat_map(maps.height, maps.width);
  const int64_t count = maps.height * maps.width;
  if (weighted && !maps.weight.empty()) {
    std::copy_n(maps.weight.begin() + head * count, count, map.values.begin());
  } else {
    map.values = mean_of_queries(maps.attention, maps.queries, maps.heads, count, head);
  }
  return map;
}

// One head's kernels as tiles. Taps outside the map take no part: they get no say in the range
// either.
HeatMap tiled_kernels(const LayerAttention& attention, int64_t head, bool weighted) {
  const AttentionKernels& k = attention.kernels;
  const int64_t count = k.rows * k.columns * k.kernel_h * k.kernel_w;
  std::vector<float> numbers;  // [rows, columns, kh, kw]
  if (weighted) {
    const auto first = k.weight.begin() + head * count;
    numbers.assign(first, first + count);
  } else {
    numbers =
        mean_of_queries(k.attention, attention.maps.queries, attention.maps.heads, count, head);
  }
  HeatMap map = viz::make_heat_map(k.rows * k.kernel_h, k.columns * k.kernel_w);
  const float* from = numbers.data();
  for (int64_t row = 0; row < k.rows; ++row)
    for (int64_t column = 0; column < k.columns; ++column)
      for (int64_t y = 0; y < k.kernel_h; ++y)
        for (int64_t x = 0; x < k.kernel_w; ++x, ++from) {
          map.at(row * k.kernel_h + y, column * k.kernel_w + x) =
              *from == 0 ? std::numeric_limits<float>::quiet_NaN() : std::abs(*from);
        }
  return map;
}

std::vector<int64_t> heads_of(const engine::AttentionLayer& layer, const SheetStyle& style) {
  if (!style.heads.empty()) return style.heads;
  std::vector<int64_t> heads(layer.heads);
  std::iota(heads.begin(), heads.end(), 0);
  return heads;
}

// One range for each map.
std::vector<Range> ranges_of(const std::vector<HeatMap>& maps, bool shared) {
  if (shared) return std::vector<Range>(maps.size(), viz::range_of(maps));
  std::vector<Range> ranges;
  for (const HeatMap& map : maps) ranges.push_back(viz::range_of({&map, 1}));
  return ranges;
}

Image to_cell(const Image& image, int64_t cell) {
  const double scale = static_cast<double>(cell) / std::max(image.height, image.width);
  const auto side = [&](int64_t pixels) {
    return std::max<int64_t>(1, std::llround(scale * static_cast<double>(pixels)));
  };
  return image::resize(image, side(image.height), side(image.width), image::Filter::kBicubic);
}

std::string kind_of(const LayerAttention& attention) {
  const AttentionMaps& maps = attention.maps;
  std::string text = attention.layer.learned_queries ? fmt::format("QnA, {} queries", maps.queries)
                                                     : std::string("self-attention");
  return text + fmt::format(", {} heads, map {} x {}", maps.heads, maps.height, maps.width);
}

const char* what(const LayerAttention& attention, const SheetStyle& style) {
  if (!attention.layer.learned_queries) return "attention";
  return style.weighted ? "|weight| of the values" : "attention, mean of the queries";
}

std::string what_is_shown(const LayerAttention& attention, const SheetStyle& style, bool kernels) {
  if (!kernels) {
    return fmt::format("{}: {}, summed over {}", kind_of(attention), what(attention, style),
                       attention.layer.learned_queries ? "windows" : "queries");
  }
  const AttentionKernels& k = attention.kernels;
  const std::string which =
      k.every == 1 ? "every window" : fmt::format("one window in each {0} x {0}", k.every);
  return fmt::format("{}: kernels of {} x {}, {}; {}", kind_of(attention), k.kernel_h, k.kernel_w,
                     what(attention, style), which);
}

std::string what_one_means(const LayerAttention& attention, const SheetStyle& style, bool kernels) {
  if (attention.layer.learned_queries && style.weighted) return "";
  if (kernels) return "1: all of a window's attention is at this place";
  return "1: as much as each place gets if attention is even; more is brighter";
}

}  // namespace

std::vector<std::string> sheet_title(const std::string& name, const LayerAttention& attention,
                                     const SheetStyle& style, bool kernels) {
  std::vector<std::string> lines = {fmt::format("{}   {}", name, attention.layer.name)};
  if (!style.says.empty()) lines.push_back("the model says: " + style.says);
  lines.push_back(what_is_shown(attention, style, kernels));
  const std::string one = what_one_means(attention, style, kernels);
  if (!one.empty()) lines.push_back(one);
  return lines;
}

Image attention_sheet(const Image& image, const std::string& name, const LayerAttention& attention,
                      const SheetStyle& style) {
  const std::vector<int64_t> heads = heads_of(attention.layer, style);
  std::vector<HeatMap> maps;
  for (const int64_t head : heads) {
    maps.push_back(summed_map(attention.maps, head, style.weighted));
  }
  maps.insert(maps.begin(), viz::mean(maps));
  const std::vector<Range> ranges = ranges_of(maps, style.shared_scale);

  const Image small = to_cell(image, style.cell);
  // The map reaches beyond the image where the stride does not divide its sides.
  const double stride = static_cast<double>(attention.layer.stride);
  const viz::Extent shown{static_cast<double>(image.height) / stride,
                          static_cast<double>(image.width) / stride};
  std::vector<Captioned> cells = {{small, fmt::format("{} x {}", image.height, image.width)}};
  for (size_t i = 0; i < maps.size(); ++i) {
    const HeatMap large =
        viz::resize(maps[i], small.height, small.width, viz::Scaling::kBicubic, shown);
    const Image drawn = viz::overlay(small, large, ranges[i], Palette::kViridis, style.opacity);
    cells.push_back({viz::with_scale_bar(drawn, ranges[i], Palette::kViridis),
                     i == 0 ? fmt::format("mean of {} heads", heads.size())
                            : fmt::format("head {}", heads[i - 1])});
  }
  return viz::contact_sheet(cells, {.title = sheet_title(name, attention, style)});
}

Image kernel_sheet(const Image& image, const std::string& name, const LayerAttention& attention,
                   const SheetStyle& style) {
  const AttentionKernels& kernels = attention.kernels;
  check(!kernels.attention.empty(), "kernel_sheet: there are no kernels of {}",
        attention.layer.name);
  const std::vector<int64_t> heads = heads_of(attention.layer, style);
  std::vector<HeatMap> maps;
  for (const int64_t head : heads) {
    maps.push_back(tiled_kernels(attention, head, style.weighted));
  }
  const std::vector<Range> ranges = ranges_of(maps, style.shared_scale);

  // Whole pixels for every number, and sheets of about one size for all layers.
  const int64_t longer = std::max(maps.front().height, maps.front().width);
  const viz::Tiles tiles{kernels.kernel_h, kernels.kernel_w,
                         std::max<int64_t>(1, 3 * kKernelSide / longer)};
  std::vector<Captioned> cells;
  for (size_t i = 0; i < maps.size(); ++i) {
    const Image drawn = viz::mosaic(maps[i], tiles, ranges[i], Palette::kInferno);
    cells.push_back({viz::with_scale_bar(drawn, ranges[i], Palette::kInferno),
                     fmt::format("head {}", heads[i])});
  }
  const Image& first = cells.front().image;
  cells.insert(cells.begin(),
               {to_cell(image, std::max(first.height - viz::kScaleBarHeight, first.width)),
                fmt::format("{} x {}", image.height, image.width)});
  return viz::contact_sheet(cells, {.title = sheet_title(name, attention, style, true)});
}

}  // namespace qna::predict
