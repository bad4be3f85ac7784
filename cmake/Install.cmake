# Installs headers, libraries and the CMake package `qna`. The result may be moved as a whole.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/qna")

# *-inl.h are parts of a source file, compiled once per instruction set; no one else includes them.
if(QNA_WITH_TORCH)
  set(_header_dirs qna)
  set(_header_destination "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(_header_dirs
      qna/base qna/c qna/coco qna/config qna/data qna/engine qna/format qna/image qna/kernels
      qna/predict qna/recipe qna/report qna/viz)
  set(_header_destination "${CMAKE_INSTALL_INCLUDEDIR}/qna")
endif()
install(DIRECTORY ${_header_dirs} DESTINATION "${_header_destination}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE PATTERN "*_test*" EXCLUDE)

install(EXPORT qnaTargets NAMESPACE qna:: DESTINATION "${_package_dir}")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/qnaConfig.cmake.in" "${PROJECT_BINARY_DIR}/package/qnaConfig.cmake"
  INSTALL_DESTINATION "${_package_dir}")
# Before 1.0 a minor version may break its users.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/qnaConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/qnaConfig.cmake"
              "${PROJECT_BINARY_DIR}/package/qnaConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake"
        DESTINATION "${_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
