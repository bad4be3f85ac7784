// A page on which one looks into a network: the picture, and over it what every window of every
// layer attends to, wherever the pointer is. One file that needs nothing else.
//
// The page holds what each softmax is taken of, not its results: a QnA layer scores every place
// once, so a map of scores says what all windows do, however large they are.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "qna/image/image.h"
#include "qna/report/html.h"

namespace qna::report {

// {down, across} each.
using Sides = std::array<int64_t, 2>;

// A QnA layer: p[l, h, t](window) ~ exp(scores[place, l, h] + bias[t, l, h]), the softmax over the
// taps t inside the map. The values are summed with scale[t, l, h] p, summed over l.
struct ExplorerWindows {
  int64_t queries = 1;
  Sides kernel = {1, 1}, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  Sides windows = {1, 1};          // how many
  std::vector<float> scores = {};  // [height, width, queries, heads]
  std::vector<float> bias = {};    // [taps, queries, heads]; empty: 0
  std::vector<float> scale = {};   // the same; empty: 1
};

// Self-attention in windows side by side: p[h](q, k) ~ exp(queries[q, h] . keys[k, h] + bias[h, k -
// q]).
struct ExplorerTokens {
  Sides window = {1, 1}, table = {1, 1};  // table: the window that the bias is for
  int64_t dim = 1;
  std::vector<float> queries = {}, keys = {};  // [height, width, heads, dim]
  std::vector<float> bias = {};                // [heads, 2 table - 1, 2 table - 1]
};

struct ExplorerLayer {
  std::string name;    // "stages.2.blocks.5"
  int64_t stride = 1;  // pixels of the network's input that a place of its map stands for
  int64_t height = 0, width = 0, heads = 0;
  std::variant<ExplorerWindows, ExplorerTokens> attention;
};

// An object, and where the decoder looked for it.
struct ExplorerBox {
  std::string name;
  double score = 0;
  std::array<double, 4> box = {0, 0, 0, 0};  // left, top, right, bottom as parts of the sides
  std::vector<float> attention = {};         // [height, width] of the decoder's map; sums to 1
};

struct ExplorerDecoder {
  int64_t height = 0, width = 0, stride = 1;  // as of a layer
  std::vector<ExplorerBox> boxes = {};        // the surest first
};

struct Explorer {
  std::string name;                                          // of the picture
  image::Image image;                                        // as it is shown; three channels
  Sides seen = {0, 0};                                       // the network's input, in pixels
  std::vector<std::pair<std::string, double>> classes = {};  // the most probable first
  std::vector<ExplorerLayer> layers = {};                    // in the network's order
  std::vector<ExplorerDecoder> decoder = {};                 // one, or none
  std::vector<std::string> notes = {};
};

// The longer side of images on pages; larger ones are shrunk.
inline constexpr int64_t kExplorerSide = 768;
inline constexpr size_t kExplorerBytes = 5'000'000;  // of a page, at most

// What a page shows, as HTML. The largest layers are left out, and said to be, where it would have
// more bytes. Throws qna::Error where it would have too many without any layer.
std::string explorer_html(const Explorer& explorer, size_t max_bytes);

// What such HTML needs once on its page.
Script explorer_script();

// The whole page.
std::string explorer_page(const Explorer& explorer);

}  // namespace qna::report
