# Acts as a stranger: installs the build, moves the installed folder, then builds and runs
# examples/ against it. Any failing step fails the test and shows its output.
# Called by CTest, see CMakeLists.txt beside this file.

cmake_minimum_required(VERSION 3.24)

function(run what)
  execute_process(
    COMMAND ${ARGN}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "install test: ${what} failed (${status})\n${command}\n${output}")
  endif()
  message(STATUS "${what}: good")
  set(run_output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
set(first "${WORK_DIR}/first")
set(prefix "${WORK_DIR}/moved")

run("install" "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --config "${BUILD_TYPE}" --prefix
    "${first}")
file(RENAME "${first}" "${prefix}")

# A package that can be moved names no folder of the machine it was made on.
file(GLOB_RECURSE package_files "${prefix}/*.cmake")
if(NOT package_files)
  message(FATAL_ERROR "install test: no CMake package was installed")
endif()
foreach(file IN LISTS package_files)
  file(READ "${file}" text)
  foreach(folder IN ITEMS "${SOURCE_DIR}" "${first}" ${TORCH_DIR})
    string(FIND "${text}" "${folder}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "install test: ${file} names ${folder}")
    endif()
  endforeach()
endforeach()

file(GLOB_RECURSE private_headers "${prefix}/include/*-inl.h" "${prefix}/include/*_test*")
if(private_headers)
  message(FATAL_ERROR "install test: private headers were installed: ${private_headers}")
endif()

if(WITH_TORCH)
  string(REPLACE "|" ";" CXX_LAUNCHER "${CXX_LAUNCHER}")
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${CXX_LAUNCHER}")
  run("configure examples" "${CMAKE_COMMAND}" -S "${EXAMPLES_DIR}" -B "${WORK_DIR}/examples" -G
      "${GENERATOR}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
      "-DCMAKE_PREFIX_PATH=${prefix}" "-DQNA_TORCH_DIR=${TORCH_DIR}")
  run("build examples" "${CMAKE_COMMAND}" --build "${WORK_DIR}/examples" --config "${BUILD_TYPE}")
  run("run examples" "${CMAKE_CTEST_COMMAND}" --test-dir "${WORK_DIR}/examples" -C "${BUILD_TYPE}"
      --no-tests=error --output-on-failure)
endif()

# The C interface: one header, one library, any C compiler.
find_program(C_COMPILER NAMES cc gcc clang REQUIRED)
run("compile predict.c" "${C_COMPILER}" -std=c99 -Wall -Wextra -pedantic -Werror
    "${EXAMPLES_DIR}/predict.c" -o "${WORK_DIR}/predict" "-I${prefix}/include"
    "-L${prefix}/${LIBRARY_DIR}" -lqna "-Wl,-rpath,${prefix}/${LIBRARY_DIR}")
set(weights "${SOURCE_DIR}/weights/classifier.safetensors")
run("run predict.c" "${WORK_DIR}/predict" "${weights}" "${SOURCE_DIR}/tests/images/rgb8.png")
if(NOT run_output MATCHES "^ +[0-9.]+ %  [-a-zA-Z'(). ]+\n( +[0-9.]+ %  [-a-zA-Z'(). ]+\n)+$")
  message(FATAL_ERROR "install test: predict.c printed\n${run_output}")
endif()

if(EXISTS "${prefix}/bin/qna")
  run("run the installed program" "${prefix}/bin/qna" predict
      "${SOURCE_DIR}/tests/images/rgb8.png")
  run("list the installed recipes" "${prefix}/bin/qna" recipes)
  if(NOT run_output MATCHES "imagenette +Imagenette")
    message(FATAL_ERROR "install test: qna recipes printed\n${run_output}")
  endif()
  # Weights that recipes name, and what shells complete.
  foreach(file qna/recipes/bccd_detr.toml qna/classifier.safetensors qna/detector.safetensors
               qna/weights/classifier.safetensors qna/weights/detector.safetensors qna/LICENSE-efficientnet
               bash-completion/completions/qna zsh/site-functions/_qna)
    if(NOT EXISTS "${prefix}/share/${file}")
      message(FATAL_ERROR "install test: share/${file} was not installed")
    endif()
  endforeach()
  file(READ "${prefix}/share/bash-completion/completions/qna" text)
  if(NOT text MATCHES "\"qna predict\"[^\n]*--threads" OR (WITH_TORCH AND NOT text MATCHES "--resume"))
    message(FATAL_ERROR "install test: the completion of bash is\n${text}")
  endif()
  if(WITH_TORCH)
    run("run the installed qna-train" "${prefix}/bin/qna" train --version)
    run("run the installed qna-bench" "${prefix}/bin/qna" bench --version)
  endif()
endif()

# Kept when the test fails, to look at.
file(REMOVE_RECURSE "${WORK_DIR}")
