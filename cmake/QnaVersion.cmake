# qna::version: the version, and the commit the sources are at, looked up at every build.
set(_version_dir "${PROJECT_BINARY_DIR}/obj/version")
add_custom_target(qna_commit
  COMMAND ${CMAKE_COMMAND} -D OUTPUT=${_version_dir}/qna_commit.h
          -D SOURCE=${PROJECT_SOURCE_DIR} -P ${PROJECT_SOURCE_DIR}/cmake/Version.cmake
  BYPRODUCTS ${_version_dir}/qna_commit.h
  VERBATIM)
qna_add_library(version INTERNAL SOURCES "${PROJECT_SOURCE_DIR}/qna/base/version.cc")
add_dependencies(qna_version qna_commit)
target_include_directories(qna_version PRIVATE "${_version_dir}")
target_compile_definitions(qna_version PRIVATE "QNA_VERSION=\"${PROJECT_VERSION}\"")
unset(_version_dir)
