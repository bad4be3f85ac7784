# The functions with which each folder's CMakeLists.txt says what it builds.
#
#   qna_add_library(<folder> SOURCES <file>... [LINKS <target>...] [PRIVATE_LINKS <target>...]
#                   [TORCH] [COLD] [INTERNAL] [SEPARATE])
#     Static library qna::<folder>, installed and exported. INTERNAL: neither of the two.
#
#   qna_add_program(<name> SOURCES <file>... [LINKS <target>...] [TORCH] [COLD] [INTERNAL])
#     Program at the top of the build folder, installed unless INTERNAL.
#
#   qna_add_test(<name> SOURCES <file>... [LINKS <target>...] [TORCH] [SEPARATE] [LABELS <label>...]
#                [TIMEOUT <seconds>] [SHARDS <count>])
#     GoogleTest program in tests/ of the build folder, one CTest test, or that many which share its
#     cases, so that they run side by side. May stand in any folder: it does nothing when tests are
#     off, or when it needs torch and QNA_WITH_TORCH is off.
#
# TORCH links LibTorch and compiles with its headers precompiled. COLD: nobody waits for this code, so that
# the compiler need not try hard; neither does anybody for code that calls LibTorch, whose work is done there
# and in our kernels.
#
# The files of a library or program are compiled several at a time, so that they read their headers once:
# names in unnamed namespaces must differ within it. SEPARATE: one by one.

include(GNUInstallDirs)

set_property(GLOBAL PROPERTY QNA_EXPORTED_LIBRARIES "")

# What every target has in common. Targets that share a precompiled header must be compiled with
# the same flags, so all code is -fPIC, programs too (CMake would give those -fPIE).
function(_qna_set_common target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC -Wall -Wextra)
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # ccache needs this to see through a precompiled header.
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# With -O1, which takes two thirds of the compiler's time: for tests, since what they test is in the
# libraries, and for code that runs once.
function(_qna_compile_quickly target)
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release,RelWithDebInfo>:-O1>")
endfunction()

function(_qna_use_torch target scope)
  if(NOT QNA_WITH_TORCH)
    message(FATAL_ERROR "${target} needs torch, but QNA_WITH_TORCH is off.")
  endif()
  target_link_libraries(${target} ${scope} LibTorch::LibTorch)
  target_precompile_headers(${target} REUSE_FROM qna_torch_pch)
  _qna_compile_quickly(${target})
endfunction()

# Batches of this many files are compiled as one.
function(_qna_compile_together target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  # Highway includes such a file several times, by itself.
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "_simd\\.cc$")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Code written with Highway, compiled once for each instruction set. SSSE3 and the Ice Lake flavour of
# AVX-512 would add build time, no speed; SVE has no vectors of a size known to the compiler, so no arrays
# of them. On x86 what is compiled without a choice at run time is SSE4: what the compiler may assume there,
# SSE2, Highway only emulates.
function(qna_use_highway target)
  set(disabled HWY_SSSE3 HWY_AVX3_DL)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_definitions(${target} PRIVATE HWY_BASELINE_TARGETS=HWY_SSE4)
  else()
    list(APPEND disabled HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128)
  endif()
  list(JOIN disabled "|" disabled)
  target_compile_definitions(${target} PRIVATE "HWY_DISABLED_TARGETS=(${disabled})")
  target_link_libraries(${target} PRIVATE hwy::hwy)
endfunction()

function(_qna_check_arguments function name)
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}(${name}): unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_SOURCES)
    message(FATAL_ERROR "${function}(${name}): SOURCES is missing.")
  endif()
endfunction()

function(qna_add_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "TORCH;COLD;INTERNAL;SEPARATE" "" "SOURCES;LINKS;PRIVATE_LINKS")
  _qna_check_arguments(qna_add_library ${folder})

  set(target qna_${folder})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(qna::${folder} ALIAS ${target})
  _qna_set_common(${target})
  target_link_libraries(${target} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
  if(ARG_TORCH)
    _qna_use_torch(${target} PUBLIC)
  elseif(ARG_COLD)
    _qna_compile_quickly(${target})
  endif()
  if(NOT ARG_SEPARATE)
    _qna_compile_together(${target} 8)
  endif()
  set_target_properties(
    ${target} PROPERTIES EXPORT_NAME ${folder} ARCHIVE_OUTPUT_DIRECTORY
                                               "${PROJECT_BINARY_DIR}/lib")

  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY QNA_EXPORTED_LIBRARIES ${target})
    install(TARGETS ${target} EXPORT qnaTargets
            ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
            INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
endfunction()

function(qna_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "TORCH;COLD;INTERNAL" "" "SOURCES;LINKS")
  _qna_check_arguments(qna_add_program ${name})

  add_executable(${name} ${ARG_SOURCES})
  _qna_set_common(${name})
  _qna_compile_together(${name} 8)
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
  if(ARG_TORCH)
    _qna_use_torch(${name} PRIVATE)
    # The installed program uses the torch it was linked with.
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "${LibTorch_HOME}/lib")
  elseif(ARG_COLD)
    _qna_compile_quickly(${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  if(NOT ARG_INTERNAL)
    install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endfunction()

function(qna_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "TORCH;SEPARATE" "TIMEOUT;SHARDS" "SOURCES;LINKS;LABELS")
  _qna_check_arguments(qna_add_test ${name})
  if(NOT QNA_BUILD_TESTS OR (ARG_TORCH AND NOT QNA_WITH_TORCH))
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()

  add_executable(${name} ${ARG_SOURCES})
  _qna_set_common(${name})
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address,undefined")
    # What is tested is in the libraries, but for what base/ has in headers.
    if(NOT name STREQUAL "base_test")
      target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
    endif()
  endif()
  if(NOT ARG_SEPARATE)
    _qna_compile_together(${name} 6)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest_main)
  if(ARG_TORCH)
    _qna_use_torch(${name} PRIVATE)
  else()
    _qna_compile_quickly(${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")

  # One CTest test per program: loading torch takes longer than most single cases.
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    add_test(NAME ${name}_${shard} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name}_${shard} PROPERTIES
      LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# qna::qna, all exported libraries at once.
function(qna_add_umbrella)
  get_property(libraries GLOBAL PROPERTY QNA_EXPORTED_LIBRARIES)
  add_library(qna_umbrella INTERFACE)
  add_library(qna::qna ALIAS qna_umbrella)
  target_link_libraries(qna_umbrella INTERFACE ${libraries})
  set_target_properties(qna_umbrella PROPERTIES EXPORT_NAME qna)
  install(TARGETS qna_umbrella EXPORT qnaTargets)
endfunction()

# The headers of torch take longer to read than most files here take to compile, so they are read
# once. <torch/torch.h> itself would bring templates that every file then instantiates anew: an empty
# file takes twice as long with it.
if(QNA_WITH_TORCH)
  add_library(qna_torch_pch OBJECT EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cmake/pch.cc")
  _qna_set_common(qna_torch_pch)
  target_link_libraries(qna_torch_pch PRIVATE LibTorch::LibTorch)
  target_precompile_headers(
    qna_torch_pch PRIVATE <torch/types.h> <torch/nn/cloneable.h> <torch/nn/pimpl.h>)
  _qna_compile_quickly(qna_torch_pch)
endif()
