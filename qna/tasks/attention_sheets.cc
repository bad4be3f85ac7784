#include "qna/tasks/attention_sheets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "qna/image/resize.h"
#include "qna/viz/contact_sheet.h"
#include "qna/viz/draw.h"

namespace qna::tasks {
namespace {

using image::Image;
using torch::Tensor;
using viz::Captioned;
using viz::HeatMap;
using viz::Palette;
using viz::Range;

// [H, W] -> the same numbers
HeatMap heat_map(const Tensor& map) {
  const Tensor values = map.to(torch::kFloat).contiguous();
  HeatMap out = viz::make_heat_map(values.size(0), values.size(1));
  std::memcpy(out.values.data(), values.data_ptr<float>(), out.values.size() * sizeof(float));
  return out;
}

// [heads, H, W] -> one map for each head that is wanted
std::vector<HeatMap> heat_maps(const Tensor& maps, const std::vector<int64_t>& heads) {
  std::vector<HeatMap> out;
  for (const int64_t head : heads) out.push_back(heat_map(maps[head]));
  return out;
}

std::vector<int64_t> heads_of(const models::AttentionLayer& layer, const SheetStyle& style) {
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

Image to_cell(const Image& photo, int64_t cell) {
  const double scale = static_cast<double>(cell) / std::max(photo.height, photo.width);
  const auto side = [&](int64_t pixels) {
    return std::max<int64_t>(1, std::llround(scale * static_cast<double>(pixels)));
  };
  return image::resize(photo, side(photo.height), side(photo.width), image::Filter::kBicubic);
}

std::string kind_of(const models::LayerAttention& attention) {
  const Tensor& map = attention.maps.attention;  // [B, L, heads, H, W]
  std::string text = attention.layer.learned_queries ? fmt::format("QnA, {} queries", map.size(1))
                                                     : std::string("self-attention");
  return text + fmt::format(", {} heads, map {} x {}", map.size(2), map.size(3), map.size(4));
}

const char* what(const models::LayerAttention& attention, const SheetStyle& style) {
  if (!attention.layer.learned_queries) return "attention";
  return style.weighted ? "|weight| of the values" : "attention, mean of the queries";
}

}  // namespace

Image attention_sheet(const Image& photo, const std::string& name,
                      const models::LayerAttention& attention, const SheetStyle& style) {
  const bool weighted = style.weighted && attention.maps.weight.defined();
  const Tensor by_head = weighted ? attention.maps.weight[0] : attention.maps.attention[0].mean(0);
  const std::vector<int64_t> heads = heads_of(attention.layer, style);
  std::vector<HeatMap> maps = heat_maps(by_head, heads);
  maps.insert(maps.begin(), viz::mean(maps));
  const std::vector<Range> ranges = ranges_of(maps, style.shared_scale);

  const Image small = to_cell(photo, style.cell);
  // The map reaches beyond the photo where the stride does not divide its sides.
  const double stride = static_cast<double>(attention.layer.stride);
  const viz::Extent shown{static_cast<double>(photo.height) / stride,
                          static_cast<double>(photo.width) / stride};
  std::vector<Captioned> cells = {{small, fmt::format("{} x {}", photo.height, photo.width)}};
  for (size_t i = 0; i < maps.size(); ++i) {
    const HeatMap large =
        viz::resize(maps[i], small.height, small.width, viz::Scaling::kBicubic, shown);
    const Image picture = viz::overlay(small, large, ranges[i], Palette::kViridis, style.opacity);
    cells.push_back({viz::with_scale_bar(picture, ranges[i], Palette::kViridis),
                     i == 0 ? fmt::format("mean of {} heads", heads.size())
                            : fmt::format("head {}", heads[i - 1])});
  }
  return viz::contact_sheet(
      cells,
      {.title = {fmt::format("{}   {}", name, attention.layer.name),
                 fmt::format("{}: {}, summed over {}", kind_of(attention), what(attention, style),
                             attention.layer.learned_queries ? "windows" : "queries")}});
}

Image kernel_sheet(const Image& photo, const std::string& name,
                   const models::LayerAttention& attention, const SheetStyle& style) {
  const auto& kernels = attention.kernels;
  const Tensor by_head =  // [heads, rows, columns, kh, kw]
      style.weighted ? kernels.weight[0].abs() : kernels.attention[0].mean(0);
  const int64_t kh = by_head.size(3), kw = by_head.size(4);
  const Tensor tiled =  // [heads, rows * kh, columns * kw]
      by_head.transpose(2, 3).reshape(
          {by_head.size(0), by_head.size(1) * kh, by_head.size(2) * kw});
  // Taps outside the map take no part: they get no say in the range either.
  const Tensor seen = tiled.masked_fill(tiled == 0, std::numeric_limits<float>::quiet_NaN());
  const std::vector<int64_t> heads = heads_of(attention.layer, style);
  const std::vector<HeatMap> maps = heat_maps(seen, heads);
  const std::vector<Range> ranges = ranges_of(maps, style.shared_scale);

  // Whole pixels for every number, and sheets of about one size for all layers.
  const int64_t longer = std::max(tiled.size(1), tiled.size(2));
  const viz::Tiles tiles{kh, kw, std::max<int64_t>(1, 3 * kKernelSide / longer)};
  std::vector<Captioned> cells;
  for (size_t i = 0; i < maps.size(); ++i) {
    const Image picture = viz::mosaic(maps[i], tiles, ranges[i], Palette::kInferno);
    cells.push_back({viz::with_scale_bar(picture, ranges[i], Palette::kInferno),
                     fmt::format("head {}", heads[i])});
  }
  const Image& first = cells.front().picture;
  cells.insert(cells.begin(),
               {to_cell(photo, std::max(first.height - viz::kScaleBarHeight, first.width)),
                fmt::format("{} x {}", photo.height, photo.width)});
  const std::string which = attention.every == 1
                                ? "every window"
                                : fmt::format("one window in each {0} x {0}", attention.every);
  return viz::contact_sheet(
      cells, {.title = {fmt::format("{}   {}", name, attention.layer.name),
                        fmt::format("{}: kernels of {} x {}, {}; {}", kind_of(attention), kh, kw,
                                    what(attention, style), which)}});
}

}  // namespace qna::tasks
