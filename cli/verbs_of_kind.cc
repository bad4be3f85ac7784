#include "cli/verbs_of_kind.h"

#include <fmt/format.h>

#include "qna/engine/model_file.h"

namespace qna::cli {

const KindVerbs& verbs_of(config::Kind kind) {
  static constexpr KindVerbs kRows[] = {
      {config::Kind::kClassifier,
       "qna predict",
       {"qna predict {} PICTURE...", "qna attend {} PICTURE... -o maps/"}},
      {config::Kind::kDetector,
       "qna detect",
       {"qna detect {} PICTURE... -o found/", "qna eval {} PICTURES --annotations ANNOTATIONS"}},
      {config::Kind::kAutoEncoder,
       "qna reconstruct",
       {"qna reconstruct {} PICTURE... -o again/", "qna eval {} PICTURES"}}};
  static_assert(std::size(kRows) == std::variant_size_v<config::NetworkConfig>);
  for (const KindVerbs& row : kRows) {
    if (row.kind == kind) return row;
  }
  fail("there is no verb for {}", config::describe(kind));
}

std::string describe_error(const std::exception& error) {
  const auto* wrong = dynamic_cast<const engine::WrongKind*>(&error);
  if (wrong == nullptr) return error.what();
  return fmt::format("{}: see {}", error.what(), verbs_of(wrong->held).reader);
}

}  // namespace qna::cli
