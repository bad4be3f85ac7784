#include "qna/base/version.h"

#include "qna_commit.h"  // written by cmake/Version.cmake

namespace qna {

const char* version() { return QNA_VERSION; }
const char* commit() { return QNA_COMMIT; }

}  // namespace qna
