# Finds LibTorch and makes the target LibTorch::LibTorch from the files of a torch folder.
#
# TorchConfig.cmake, which torch ships, is not used: in a CUDA wheel it stops unless the machine
# also has the CUDA toolkit, and this project needs neither. It also sets global flags.
#
# Where it looks, first match wins:
#   1. QNA_TORCH_DIR, a CMake or environment variable: a libtorch folder, or .../site-packages/torch
#   2. CMAKE_PREFIX_PATH: such a folder, or its share/cmake as TorchConfig users write it
#   3. build/venv of the source tree, made by tools/setup
#   4. a python3 that can import torch
#
# Sets LibTorch_FOUND, LibTorch_VERSION and LibTorch_HOME (the folder).

set(_torch_wanted 2.13)

# A torch folder is one that has these two.
function(_libtorch_is_root result folder)
  set(${result} FALSE PARENT_SCOPE)
  if(EXISTS "${folder}/include/torch/csrc/api/include/torch/torch.h"
     AND EXISTS "${folder}/lib/libtorch_cpu.so")
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(_libtorch_search result)
  set(candidates "")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND candidates "${prefix}" "${prefix}/../..")
  endforeach()
  foreach(tree IN ITEMS "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..")
    file(GLOB venv "${tree}/build/venv/lib/python3*/site-packages/torch")
    list(APPEND candidates ${venv})
  endforeach()

  foreach(candidate IN LISTS candidates)
    _libtorch_is_root(found "${candidate}")
    if(found)
      file(REAL_PATH "${candidate}" candidate)
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  find_program(LibTorch_PYTHON python3)
  mark_as_advanced(LibTorch_PYTHON)
  if(LibTorch_PYTHON)
    # find_spec tells the place without the seconds an import takes.
    execute_process(
      COMMAND "${LibTorch_PYTHON}" -c
              "from importlib.util import find_spec; print(find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    _libtorch_is_root(found "${folder}")
    if(found)
      set(${result} "${folder}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(_libtorch_read_version result folder)
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${folder}/include/${header}")
      file(STRINGS "${folder}/include/${header}" lines
           REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]*" "\\1;" numbers "${lines}")
      list(FILTER numbers EXCLUDE REGEX "^$")
      list(JOIN numbers "." version)
      if(version)
        set(${result} "${version}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# torch ships a copy of fmt in its include folder. It would hide the fmt that the linker gets, so
# targets see the torch headers through a folder of links that leaves that copy out.
# (torch/torch.h does not use fmt.)
function(_libtorch_include_dir result folder)
  set(${result} "${folder}/include" PARENT_SCOPE)
  if(EXISTS "${folder}/include/fmt")
    set(links "${CMAKE_BINARY_DIR}/libtorch-include")
    file(REMOVE_RECURSE "${links}.new")
    file(MAKE_DIRECTORY "${links}.new")
    file(GLOB entries RELATIVE "${folder}/include" "${folder}/include/*")
    list(REMOVE_ITEM entries fmt)
    foreach(entry IN LISTS entries)
      file(CREATE_LINK "${folder}/include/${entry}" "${links}.new/${entry}" SYMBOLIC)
    endforeach()
    file(REMOVE_RECURSE "${links}")
    file(RENAME "${links}.new" "${links}")
    set(${result} "${links}" PARENT_SCOPE)
  endif()
endfunction()

if(NOT QNA_TORCH_DIR AND DEFINED ENV{QNA_TORCH_DIR})
  # Kept in the cache, so that a later run of CMake without the variable finds the same torch.
  set(QNA_TORCH_DIR "$ENV{QNA_TORCH_DIR}" CACHE PATH "Folder of LibTorch" FORCE)
endif()

set(LibTorch_HOME "")
if(QNA_TORCH_DIR)
  # A folder the user named is used or refused, never silently replaced by another one.
  _libtorch_is_root(_torch_found "${QNA_TORCH_DIR}")
  if(_torch_found)
    file(REAL_PATH "${QNA_TORCH_DIR}" LibTorch_HOME)
    set(_torch_hint "")
  else()
    set(_torch_hint "QNA_TORCH_DIR is ${QNA_TORCH_DIR}, which has no lib/libtorch_cpu.so.")
  endif()
else()
  _libtorch_search(LibTorch_HOME)
  set(_torch_hint "Run tools/setup, which installs it into build/venv, or set QNA_TORCH_DIR.")
endif()
if(LibTorch_HOME)
  _libtorch_read_version(LibTorch_VERSION "${LibTorch_HOME}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_HOME
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "${_torch_hint} QNA_TORCH_DIR names a libtorch folder or the torch folder of a pip install")

if(LibTorch_FOUND AND NOT LibTorch_VERSION MATCHES "^${_torch_wanted}(\\.|$)")
  message(WARNING "Found LibTorch ${LibTorch_VERSION} in ${LibTorch_HOME}. "
                  "This project is written for and tested with ${_torch_wanted}.")
endif()

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  _libtorch_include_dir(_torch_include "${LibTorch_HOME}")

  # An imported target's include folders are system folders, so its headers give no warnings.
  # The headers hold OpenMP loops (ATen/Parallel.h): every user has to compile with OpenMP.
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  set_target_properties(
    LibTorch::LibTorch
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
               "${_torch_include};${_torch_include}/torch/csrc/api/include"
               INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>"
               INTERFACE_COMPILE_FEATURES cxx_std_20)

  # libtorch.so holds no code of its own, it loads the backends. Without it a CUDA build of torch
  # serves as a CPU one and starts faster.
  set(_torch_parts torch_cpu c10)
  if(NOT EXISTS "${LibTorch_HOME}/lib/libtorch_cuda.so")
    list(PREPEND _torch_parts torch)
  endif()
  foreach(_torch_part IN LISTS _torch_parts)
    add_library(LibTorch::${_torch_part} SHARED IMPORTED)
    set_target_properties(
      LibTorch::${_torch_part}
      PROPERTIES IMPORTED_LOCATION "${LibTorch_HOME}/lib/lib${_torch_part}.so"
                 IMPORTED_SONAME "lib${_torch_part}.so")
    target_link_libraries(LibTorch::LibTorch INTERFACE LibTorch::${_torch_part})
  endforeach()

  # torch brings its own OpenMP runtime. Linking that same file keeps it the only one in a process.
  file(GLOB _torch_openmp "${LibTorch_HOME}/lib/libgomp*.so*")
  if(_torch_openmp)
    list(GET _torch_openmp 0 _torch_openmp)
    add_library(LibTorch::openmp SHARED IMPORTED)
    set_target_properties(LibTorch::openmp PROPERTIES IMPORTED_LOCATION "${_torch_openmp}")
    target_link_libraries(LibTorch::LibTorch INTERFACE LibTorch::openmp)
  else()
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_link_libraries(LibTorch::LibTorch INTERFACE OpenMP::OpenMP_CXX)
  endif()

  # A CUDA wheel's libtorch_cpu.so needs libraries of the nvidia-* wheels beside it. It finds them
  # itself when it runs, but the linker has to be told.
  file(GLOB _torch_nvidia "${LibTorch_HOME}/../nvidia/*/lib")
  foreach(_torch_folder IN LISTS _torch_nvidia)
    target_link_options(LibTorch::LibTorch INTERFACE "LINKER:-rpath-link,${_torch_folder}")
  endforeach()
endif()

unset(_torch_wanted)
unset(_torch_found)
unset(_torch_hint)
unset(_torch_include)
unset(_torch_parts)
unset(_torch_part)
unset(_torch_openmp)
unset(_torch_nvidia)
unset(_torch_folder)
