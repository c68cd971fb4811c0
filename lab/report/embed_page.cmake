# Writes the definition of gluon::lab::page_template(): one file as raw string literals in a C++ source.
#
#   cmake -D INPUT=<page.html> -D OUTPUT=<file.cpp> -P embed_page.cmake

cmake_minimum_required(VERSION 3.22)

include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/text_literals.cmake)
file(READ "${INPUT}" text)
text_literals(literals "${text}" "${INPUT}")
write_text_source("${OUTPUT}" page_template lab/report/page.h "${literals}")
