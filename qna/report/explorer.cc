#include "qna/report/explorer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/viz/palette.h"

namespace qna::report {

std::string_view explorer_skeleton();  // of the page's files, see CMakeLists.txt

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

template <typename Number>
std::string packed(const std::vector<Number>& numbers) {
  return base64({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)});
}

json packed_floats(const std::vector<float>& numbers) {
  return {{"type", "float32"}, {"data", packed(numbers)}};
}

// [rows, columns], in 16 bits: low + step n with a low and a step for each column. A score that is
// off by step / 2 changes a probability by at most step / 4, which must not be seen in three
// decimals; where scores are that large they stay as they are.
json packed_columns(const std::vector<float>& numbers, int64_t columns, const std::string& layer) {
  constexpr float kLargestStep = 4 * 0.0002f, kLevels = 65535;
  const auto rows = static_cast<int64_t>(numbers.size()) / columns;
  std::vector<float> low(columns), step(columns);
  for (int64_t c = 0; c < columns; ++c) {
    float least = numbers[c], most = numbers[c];
    for (int64_t r = 0; r < rows; ++r) {
      const float number = numbers[r * columns + c];
      check(std::isfinite(number), "explorer: the scores of {} are not all finite, got {}", layer,
            number);
      least = std::min(least, number);
      most = std::max(most, number);
    }
    low[c] = least;
    step[c] = (most - least) / kLevels;
  }
  if (*std::max_element(step.begin(), step.end()) > kLargestStep) return packed_floats(numbers);
  std::vector<uint16_t> levels(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t c = i % columns;
    const float level = step[c] > 0 ? std::round((numbers[i] - low[c]) / step[c]) : 0;
    levels[i] = static_cast<uint16_t>(std::clamp(level, 0.0f, kLevels));
  }
  return {
      {"type", "uint16"}, {"low", packed(low)}, {"step", packed(step)}, {"data", packed(levels)}};
}

json to_json(const ExplorerWindows& a, const ExplorerLayer& layer) {
  return {{"kind", "windows"},
          {"queries", a.queries},
          {"kernel", a.kernel},
          {"window_stride", a.stride},
          {"padding", a.padding},
          {"dilation", a.dilation},
          {"windows", a.windows},
          {"scores", packed_columns(a.scores, a.queries * layer.heads, layer.name)},
          {"bias", packed_floats(a.bias)},
          {"scale", packed_floats(a.scale)}};
}

json to_json(const ExplorerTokens& a, const ExplorerLayer& layer) {
  return {{"kind", "tokens"},
          {"window", a.window},
          {"table", a.table},
          {"dim", a.dim},
          {"queries_of", packed_columns(a.queries, layer.heads * a.dim, layer.name)},
          {"keys_of", packed_columns(a.keys, layer.heads * a.dim, layer.name)},
          {"bias", packed_floats(a.bias)}};
}

json to_json(const ExplorerLayer& layer) {
  json out =
      std::visit([&](const auto& attention) { return to_json(attention, layer); }, layer.attention);
  out["name"] = layer.name;
  out["stride"] = layer.stride;
  out["height"] = layer.height;
  out["width"] = layer.width;
  out["heads"] = layer.heads;
  return out;
}

json to_json(const ExplorerDecoder& decoder) {
  json boxes = json::array();
  for (const ExplorerBox& box : decoder.boxes) {
    boxes.push_back({{"name", box.name},
                     {"score", box.score},
                     {"box", box.box},
                     {"attention", packed_floats(box.attention)}});
  }
  return {{"height", decoder.height},
          {"width", decoder.width},
          {"stride", decoder.stride},
          {"boxes", std::move(boxes)}};
}

// The colours that the sheets of `qna attend` have too.
std::string packed_palette() {
  std::vector<uint8_t> colors;
  for (int i = 0; i < 256; ++i) {
    const viz::Color color = viz::color_of(viz::Palette::kViridis, static_cast<float>(i) / 255.0f);
    colors.insert(colors.end(), color.begin(), color.end());
  }
  return packed(colors);
}

// What neither HTML nor XML takes for markup: only texts can hold < > &, and there this is the
// same.
std::string text_of(const json& value) {
  const std::string plain =
      value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  std::string out;
  for (const char c : plain) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

// The skeleton with what belongs into it, which may hold the same words.
std::string filled(std::string_view picture, std::string_view data) {
  constexpr std::string_view kPicture = "{picture}", kData = "{data}";
  const std::string_view skeleton = explorer_skeleton();
  const size_t first = skeleton.find(kPicture), second = skeleton.find(kData);
  const size_t behind = first + kPicture.size();
  return fmt::format("{}{}{}{}{}", skeleton.substr(0, first), picture,
                     skeleton.substr(behind, second - behind), data,
                     skeleton.substr(second + kData.size()));
}

// Layers as text, and those that were left out so that all have at most so many bytes.
struct PackedLayers {
  std::string text;  // separated by commas
  std::vector<std::string> left_out;
};

PackedLayers pack(const std::vector<ExplorerLayer>& layers, size_t max_bytes) {
  std::vector<std::string> texts;
  size_t total = 0;
  for (const ExplorerLayer& layer : layers) {
    texts.push_back(text_of(to_json(layer)) + ",");
    total += texts.back().size();
  }
  PackedLayers packed;
  while (total > max_bytes) {
    const auto largest = std::max_element(
        texts.begin(), texts.end(),
        [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
    total -= largest->size();
    packed.left_out.push_back(layers[largest - texts.begin()].name);
    largest->clear();
  }
  for (const std::string& text : texts) packed.text += text;
  if (!packed.text.empty()) packed.text.pop_back();
  return packed;
}

}  // namespace

std::string explorer_html(const Explorer& explorer, size_t max_bytes) {
  const image::Image shown = shrunk(explorer.image, kExplorerSide);
  const std::string picture =
      fmt::format(R"(<img{} src="{}" width="{}" height="{}" alt="{}" draggable="false"/>)",
                  is_small(shown) ? R"( class="small")" : "", png_data_uri(shown), shown.width,
                  shown.height, escape(explorer.name));
  json data = {{"name", explorer.name},    {"seen", explorer.seen}, {"palette", packed_palette()},
               {"classes", json::array()}, {"decoder", nullptr},    {"notes", explorer.notes}};
  for (const auto& [name, probability] : explorer.classes) {
    data["classes"].push_back({{"name", name}, {"probability", probability}});
  }
  if (!explorer.decoder.empty()) data["decoder"] = to_json(explorer.decoder.front());

  constexpr size_t kForNotes = 16384;
  const size_t without_layers =
      explorer_skeleton().size() + picture.size() + text_of(data).size() + kForNotes;
  check(without_layers <= max_bytes,
        "explorer: the page of {} would have {} bytes without any layer, the most are {}; look at "
        "it with a smaller --size or fewer boxes (a higher --threshold)",
        explorer.name, without_layers, max_bytes);
  const PackedLayers layers = pack(explorer.layers, max_bytes - without_layers);
  if (!layers.left_out.empty()) {
    data["notes"].push_back(fmt::format(
        "Left out, so that the page has at most {:.1f} MB: {}. A smaller --size, or --layer, shows "
        "them.",
        static_cast<double>(max_bytes) / 1e6, fmt::join(layers.left_out, ", ")));
  }
  const std::string text = text_of(data);
  // The layers are text already: they go in front of the closing brace.
  const std::string all = fmt::format(
      "{},\"layers\":[{}]}}", std::string_view(text).substr(0, text.size() - 1), layers.text);
  return filled(picture, all);
}

std::string explorer_page(const Explorer& explorer) {
  const Script script = explorer_script();
  const std::string frame = page(explorer.name, "", script);
  return page(explorer.name, explorer_html(explorer, kExplorerBytes - frame.size()), script);
}

}  // namespace qna::report
