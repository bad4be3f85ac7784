// Which program this is. A library of its own, qna::version, since it changes with every commit.
#pragma once

namespace qna {

const char* version();  // "0.1.0"
const char* commit();   // that it was built from, or "unknown"

}  // namespace qna
