#include "qna/kinds/kind.h"

#include <fmt/ranges.h>

#include "qna/base/error.h"

namespace qna::kinds {

std::span<const KindRow> all_kinds() {
  static const KindRow rows[] = {classifier(), detector(), auto_encoder()};
  static_assert(std::size(rows) == std::variant_size_v<config::NetworkConfig>);
  return rows;
}

const KindRow& row_of(config::Kind kind) {
  for (const KindRow& row : all_kinds()) {
    if (row.kind == kind) return row;
  }
  fail("there is no row for {}", config::describe(kind));
}

const KindRow& row_of_task(const std::string& task) {
  std::vector<const char*> names;
  for (const KindRow& row : all_kinds()) {
    if (task == row.task) return row;
    names.push_back(row.task);
  }
  fail("recipe: task must be one of {}, got '{}'", fmt::join(names, ", "), task);
}

}  // namespace qna::kinds
