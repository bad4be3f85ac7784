#include "qna/viz/text.h"

#include <algorithm>

namespace qna::viz {
namespace {

constexpr char kFirst = ' ', kLast = '~';

// The letters ' ' to '~' of the X Window System's font 6x13 ("Public domain font. Share and
// enjoy."), of which the first row and the last column are always blank. Bit 5 y + x is column x of
// row y + 1.
constexpr int64_t kRows = 12, kColumns = 5;
constexpr uint64_t kGlyphs[kLast - kFirst + 1] = {
    0x000000000000000, 0x000802108421080, 0x000000000052940, 0x0000a57d5f52800, 0x0008fa51c52f880,
    0x001355088855640, 0x002c9c944528800, 0x000000000021080, 0x020841084211088, 0x008844210841082,
    0x000000009575480, 0x00000213e420000, 0x0088c0000000000, 0x00000003e000000, 0x011c40000000000,
    0x000211088844200, 0x0008a8c6318a880, 0x003e42108429880, 0x003e1111108c5c0, 0x001d1841c4443e0,
    0x00108fa54a62100, 0x001d18426d087e0, 0x001d18c5e10c5c0, 0x0004211088443e0, 0x001d18c5d18c5c0,
    0x001d1843d18c5c0, 0x011c40008e20000, 0x0088c0008e20000, 0x002082082222200, 0x00000f801f00000,
    0x000222220820820, 0x00080211108c5c0, 0x003c16d6b98c5c0, 0x002318fe318a880, 0x001f2949d2949e0,
    0x001d1084210c5c0, 0x001f294a52949e0, 0x003e1085e1087e0, 0x00021085e1087e0, 0x001d18e4210c5c0,
    0x002318c7f18c620, 0x001c421084211c0, 0x000c94210842380, 0x00231494654c620, 0x003e10842108420,
    0x002318c6b5dc620, 0x00231ce6b59ce20, 0x001d18c6318c5c0, 0x00021085f18c5e0, 0x041d58c6318c5c0,
    0x00231495f18c5e0, 0x001d1841c10c5c0, 0x0008421084213e0, 0x001d18c6318c620, 0x00084529518c620,
    0x00155ad6b18c620, 0x002315288a54620, 0x000842108a54620, 0x003e110888443e0, 0x03842108421084e,
    0x002104208210420, 0x03908421084210e, 0x00000000008a880, 0x07c000000000000, 0x000000000000104,
    0x002d98fa0e00000, 0x001f18c62f08420, 0x001d10862e00000, 0x003d18c63e84200, 0x001d10fe2e00000,
    0x00042109e214980, 0x7461e8c62e00000, 0x002318c66d08420, 0x001c42108601000, 0x325284210c02000,
    0x0022928ca908420, 0x001c421084210c0, 0x00235ad6ab00000, 0x002318c66d00000, 0x001d18c62e00000,
    0x0842f8c62f00000, 0x8421e8c63e00000, 0x000210866d00000, 0x001d141a2e00000, 0x001921084f10800,
    0x002d98c63100000, 0x0008a5463100000, 0x00155ad63100000, 0x0022a2115100000, 0x74616cc63100000,
    0x003e11111f00000, 0x060842106421098, 0x000842108421080, 0x00c842130421083, 0x00000000004d640,
};

// The text with one ASCII letter per letter of the UTF-8 it came in.
std::string to_ascii(std::string_view text) {
  std::string ascii;
  for (const char c : text) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (!continues) ascii += c >= kFirst && c <= kLast ? c : '?';
  }
  return ascii;
}

}  // namespace

int64_t text_width(std::string_view text) {
  return static_cast<int64_t>(to_ascii(text).size()) * kGlyphWidth;
}

void draw_text(image::Image& image, int64_t top, int64_t left, std::string_view text, Color color) {
  image::check_image(image, "draw_text");
  for (const char c : to_ascii(text)) {
    const uint64_t glyph = kGlyphs[c - kFirst];
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t column = 0; column < kColumns; ++column) {
        const int64_t y = top + 1 + row, x = left + column;
        const bool inside = y >= 0 && y < image.height && x >= 0 && x < image.width;
        if (inside && (glyph >> (kColumns * row + column) & 1) != 0) {
          std::copy_n(color.begin(), image.channels, image.row(y) + x * image.channels);
        }
      }
    left += kGlyphWidth;
  }
}

std::string shorten(std::string_view text, int64_t width) {
  const std::string ascii = to_ascii(text);
  const auto room = static_cast<size_t>(std::max<int64_t>(width / kGlyphWidth, 0));
  if (ascii.size() <= room) return ascii;
  if (room < 3) return ascii.substr(0, room);
  const size_t head = (room - 2) / 2, tail = room - 2 - head;
  return ascii.substr(0, head) + ".." + ascii.substr(ascii.size() - tail);
}

}  // namespace qna::viz
