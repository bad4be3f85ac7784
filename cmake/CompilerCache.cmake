# Compiles through ccache when it is there. Never overrides a launcher the user chose.

find_program(QNA_CCACHE ccache)
mark_as_advanced(QNA_CCACHE)

if(QNA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache refuses precompiled headers unless it may ignore the macros and the time stamps in them.
  # The contents of every header are still compared.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      "${QNA_CCACHE}")
endif()
