#include "bench/study/csv.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "qna/base/error.h"

namespace qna::bench::study {
namespace {

constexpr std::string_view kHeader =
    "subject,pass,kernel,batch,height,width,dim,heads,queries,threads,min_ms,median_ms,spread,runs,"
    "peak_bytes,extra_bytes,memory,max_difference,skipped,version,machine,commit";

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out + '"';
}

// The fields of a line, without their quotes.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields(1);
  bool inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      const bool doubled = inside && i + 1 < line.size() && line[i + 1] == '"';
      if (doubled) fields.back() += line[++i];
      if (!doubled) inside = !inside;
    } else if (line[i] == ',' && !inside) {
      fields.emplace_back();
    } else if (line[i] != '\r') {
      fields.back() += line[i];
    }
  }
  return fields;
}

// The fields of one line, read one after the other.
struct Fields {
  std::vector<std::string> all;
  std::string place;  // "study.csv, line 3"
  size_t next = 0;

  std::string text() { return all[next++]; }

  template <typename T>
  T parse(T fallback) {
    const std::string& field = all[next++];
    if (field.empty()) return fallback;
    T value{};
    const auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), value);
    check(problem == std::errc{} && end == field.data() + field.size(), "{}: '{}' is not a number",
          place, field);
    return value;
  }
  int64_t whole() { return parse<int64_t>(0); }
  double real() { return parse<double>(NAN); }
};

Row parse_row(Fields fields) {
  Row row;
  row.subject = fields.text();
  row.pass = fields.text();
  check(row.pass == kForward || row.pass == kTrain, "{}: pass must be {} or {}, got '{}'",
        fields.place, kForward, kTrain, row.pass);
  row.shape.kernel = fields.whole();
  const int64_t batch = fields.whole();
  row.shape.side = fields.whole();
  const int64_t width = fields.whole();
  row.shape.dim = fields.whole();
  check(batch == 1 && width == row.shape.side && row.shape.side > 0 && row.shape.kernel > 0 &&
            row.shape.dim > 0,
        "{}: a case must be one square map", fields.place);
  fields.next += 2;  // heads and queries are always the same
  row.threads = static_cast<int>(fields.whole());
  row.min_ms = fields.real();
  row.median_ms = fields.real();
  row.spread = fields.real();
  row.runs = static_cast<int>(fields.whole());
  row.peak_bytes = fields.whole();
  row.extra_bytes = fields.whole();
  row.memory = fields.text();
  row.difference = fields.real();
  row.skipped = fields.text();
  row.version = fields.text();
  row.machine = fields.text();
  row.commit = fields.text();
  check(!row.measured() || row.min_ms > 0, "{}: a row without a time must say why", fields.place);
  return row;
}

}  // namespace

std::string to_csv(const Rows& rows) {
  std::string text = std::string(kHeader) + "\n";
  for (const Row& r : rows) {
    text += fmt::format("{},{},{},1,{},{},{},{},{},{},", r.subject, r.pass, r.shape.kernel,
                        r.shape.side, r.shape.side, r.shape.dim, kHeads, kQueries, r.threads);
    if (r.measured()) {
      text += fmt::format("{:.4f},{:.4f},{:.3f},{},{},{},{},{},", r.min_ms, r.median_ms, r.spread,
                          r.runs, r.peak_bytes, r.extra_bytes, r.memory,
                          std::isnan(r.difference) ? "" : fmt::format("{:.2e}", r.difference));
    } else {
      text += ",,,,,,,,";
    }
    text += fmt::format("{},{},{},{}\n", r.measured() ? "" : quoted(r.skipped), quoted(r.version),
                        quoted(r.machine), r.commit);
  }
  return text;
}

Rows from_csv(const std::string& text, const std::string& origin) {
  std::istringstream lines(text);
  std::string line;
  check(std::getline(lines, line) && split(line) == split(std::string(kHeader)),
        "{} is no table of the cost study: its first line must be '{}'", origin, kHeader);
  Rows rows;
  for (int64_t at = 2; std::getline(lines, line); ++at) {
    if (line.empty()) continue;
    Fields fields{split(line), fmt::format("{}, line {}", origin, at)};
    const size_t columns = split(std::string(kHeader)).size();
    check(fields.all.size() == columns, "{}: there must be {} fields, got {}", fields.place,
          columns, fields.all.size());
    rows.push_back(parse_row(std::move(fields)));
  }
  return rows;
}

}  // namespace qna::bench::study
