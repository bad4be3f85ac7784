#include "qna/report/html.h"

#include <algorithm>
#include <cstdint>

#include "qna/base/error.h"
#include "qna/format/text.h"
#include "qna/image/resize.h"
#include "qna/image/write_png.h"

namespace qna::report {
namespace {

// Nothing here may hold < or &, which XML would read as markup.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #f4f5f7; --card: #ffffff; --line: #dfe3e8; --ink: #1c2127;
  --soft: #5d6773; --right: #00795a; --wrong: #b84a00; --shade: 0, 114, 178; --miss: 213, 94, 0; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #101317; --card: #181c22;
  --line: #2c333c; --ink: #e4e8ed; --soft: #98a3b0; --right: #2fc79a; --wrong: #f0803c;
  --shade: 64, 156, 219; --miss: 238, 119, 51; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 16px 48px; }
h1 { font-size: 26px; line-height: 1.25; font-weight: 650; margin: 0 0 18px; overflow-wrap: anywhere; }
h2 { font-size: 16px; font-weight: 650; margin: 0 0 12px; }
p { margin: 0 0 8px; } p:last-child { margin-bottom: 0; }
.soft { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  margin: 0 0 16px; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px;
  margin: 0 0 16px; }
.numbers div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; }
.numbers dt { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
.numbers dd { margin: 2px 0 0; font-size: 24px; line-height: 1.25; font-weight: 650;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px;
  margin: 0 0 16px; }
.charts .card { margin: 0; padding: 14px 14px 8px; }
.charts svg { display: block; width: 100%; height: auto; max-width: 640px; margin: 0 auto; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(144px, 1fr)); gap: 12px; }
.pictures.large { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }
figure { margin: 0; break-inside: avoid; }
figure img { display: block; width: 100%; height: auto; max-height: 480px; object-fit: contain;
  border-radius: 6px; }
figure img { cursor: zoom-in; }
figure img:focus { position: fixed; inset: 0; z-index: 9; width: 100vw; height: 100vh; max-height: none;
  padding: 2vmin; background: var(--page); border-radius: 0; outline: none; cursor: zoom-out; }
img.small { image-rendering: pixelated; }
figcaption { font-size: 13px; line-height: 1.35; margin-top: 5px; overflow-wrap: anywhere; }
.right { color: var(--right); } .wrong { color: var(--wrong); } .right, .wrong { font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 8px; text-align: right; font-weight: 400; }
.pairs th { color: var(--soft); } .pairs th, .pairs td { border-bottom: 1px solid var(--line); }
.pairs .name { text-align: left; overflow-wrap: anywhere; }
.confusion td { min-width: 30px; text-align: center; border: 1px solid var(--line); }
.confusion th { max-width: 160px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  color: var(--soft); }
.confusion thead th { vertical-align: bottom; text-align: center; padding: 4px 2px; }
.confusion thead th span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 120px;
  overflow: hidden; text-overflow: ellipsis; display: inline-block; text-align: left; }
.confusion td.strong { color: #ffffff; } .confusion td.none { color: var(--soft); opacity: 0.55; }
.confusion td.share { border: 0; color: var(--soft); padding-left: 12px; text-align: right; }
.confusion tbody th { position: sticky; left: 0; background: var(--card); }
.confusion.many th, .confusion.many td { font-size: 11px; padding: 2px 3px; }
.confusion.many td { min-width: 24px; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; }
dl.facts dt { color: var(--soft); } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: 0; overflow-x: auto; font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono",
  monospace; }
ul { margin: 0; padding-left: 20px; } li { overflow-wrap: anywhere; }
@media (max-width: 480px) { main { padding: 18px 10px 32px; } h1 { font-size: 22px; }
  .card { padding: 14px 12px; } .charts .card { padding: 12px 8px 6px; }
  .numbers { grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 8px; }
  .numbers dd { font-size: 20px; } .pictures { grid-template-columns: repeat(auto-fill, minmax(92px, 1fr)); } }
@media print { :root { --page: #ffffff; } main { max-width: none; padding: 0; }
  .charts { grid-template-columns: 1fr 1fr; } .charts .card, .numbers div, tr { break-inside: avoid; }
  h2 { break-after: avoid; } pre { white-space: pre-wrap; overflow-wrap: anywhere; } .scroll { overflow: visible; }
  .confusion td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)";

std::string bytes_of_hex(std::string_view digits) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(value(digits[i]) * 16 + value(digits[i + 1]));
  }
  return bytes;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  const std::string valid = format::valid_utf8(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    const char c = valid[i];
    const bool control = static_cast<uint8_t>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r';
    // U+FFFE and U+FFFF, which are ef bf be and ef bf bf.
    const bool forbidden = valid.compare(i, 2, "\xef\xbf") == 0 && i + 2 < valid.size() &&
                           static_cast<uint8_t>(valid[i + 2]) >= 0xbe;
    if (forbidden) i += 2;
    if (control || forbidden) {
      out += "\xef\xbf\xbd";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;  // 24 bits, four digits of six; k bytes fill k + 1 digits
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

image::Image shrunk(const image::Image& image, int64_t side) {
  image::check_image(image, "shrunk");
  const int64_t longer = std::max(image.height, image.width);
  if (longer <= side) return image;
  const auto scaled = [&](int64_t size) { return std::max<int64_t>(1, size * side / longer); };
  return image::resize(image, scaled(image.height), scaled(image.width), image::Filter::kBicubic);
}

bool is_small(const image::Image& image) { return std::max(image.height, image.width) <= 96; }

std::string png_data_uri(const image::Image& image) {
  return "data:image/png;base64," + base64(image::encode_png(image, "png_data_uri"));
}

std::string image_tag(const image::Image& image, std::string_view alt) {
  // With a tabindex a click gives it the focus, and it fills the window until the next one
  // elsewhere.
  return fmt::format(R"(<img{} tabindex="0" src="{}" width="{}" height="{}" alt="{}"/>)",
                     is_small(image) ? R"( class="small")" : "", png_data_uri(image), image.width,
                     image.height, escape(alt));
}

std::string card(std::string_view heading, std::string_view body) {
  return fmt::format("<section class=\"card\">\n<h2>{}</h2>\n{}</section>\n", escape(heading),
                     body);
}

std::string description_list(const char* kind,
                             const std::vector<std::pair<std::string, std::string>>& pairs) {
  // The big numbers are boxes, so each pair needs one element around it.
  const bool boxes = std::string_view(kind) == "numbers";
  std::string html = fmt::format("<dl class=\"{}\">\n", kind);
  for (const auto& [label, value] : pairs) {
    html += fmt::format("{}<dt>{}</dt><dd>{}</dd>{}\n", boxes ? "<div>" : "", escape(label),
                        escape(value), boxes ? "</div>" : "");
  }
  return html + "</dl>\n";
}

std::string page(std::string_view title, std::string_view body, const Script& script) {
  // The policy forbids loading, and scripts other than ours, should a label ever slip through
  // unescaped.
  const std::string allowed =
      script.code.empty()
          ? ""
          : fmt::format("; script-src 'sha256-{}'", base64(bytes_of_hex(script.sha256)));
  const std::string code =
      script.code.empty() ? "" : fmt::format("<script>{}</script>\n", script.code);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; img-src data:{3}\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{0}</title>\n<style>{1}{4}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n{2}</"
      "main>\n"
      "{5}</body>\n</html>\n",
      escape(title), kStyle, body, allowed, script.style, code);
}

}  // namespace qna::report
