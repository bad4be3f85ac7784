# Writes OUTPUT, a header with the commit of SOURCE; touches it only when that changed.
cmake_minimum_required(VERSION 3.24)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once\n#define QNA_COMMIT \"@commit@\"\n" @ONLY)
