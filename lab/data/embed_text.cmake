# Writes the definition of gluon::lab::default_text(): the given files in one C++ source.
#
#   cmake -D ROOT=<folder> -D LIST=<file> -D OUTPUT=<file.cpp> -P embed_text.cmake
#
# LIST holds one path relative to ROOT per line, in the order to embed. Every file becomes its path, a newline and
# its bytes.

cmake_minimum_required(VERSION 3.22)

foreach(argument ROOT LIST OUTPUT)
  if(NOT DEFINED ${argument})
    message(FATAL_ERROR "embed_text.cmake: -D ${argument}=... is missing")
  endif()
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/text_literals.cmake)

set(all_literals "")
file(STRINGS "${LIST}" paths)
if(NOT paths)
  message(FATAL_ERROR "embed_text.cmake: ${LIST} names no files")
endif()
foreach(path IN LISTS paths)
  file(READ "${ROOT}/${path}" content)
  text_literals(literals "${path}\n${content}" "${path}")
  string(APPEND all_literals "${literals}")
endforeach()
write_text_source("${OUTPUT}" default_text lab/data/default_text.h "${all_literals}")
