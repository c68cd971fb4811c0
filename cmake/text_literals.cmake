# text_literals(<variable> <text> <what>): the text as a list of C++ raw string literals, one per line, for an array of
# std::string_view. It is cut at line ends below 12 000 bytes: compilers limit the length of one literal. <what> names
# the text in errors.

# A raw literal may not contain ) + delimiter + quote. This file itself is never embedded.
set(text_literals_delimiter "gluon_text")
set(text_literals_bytes 12000)

# Semicolons and brackets in the text are safe as long as it is never taken for a list: keep the quotes.
function(text_literals variable text what)
  set(delimiter ${text_literals_delimiter})
  string(FIND "${text}" ")${delimiter}\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "text_literals: ${what} contains the delimiter )${delimiter}\"")
  endif()
  set(literals "")
  string(LENGTH "${text}" length)
  while(length GREATER 0)
    set(cut ${length})
    if(length GREATER text_literals_bytes)
      string(SUBSTRING "${text}" 0 ${text_literals_bytes} piece)
      string(FIND "${piece}" "\n" cut REVERSE)
      if(cut EQUAL -1)
        message(FATAL_ERROR "text_literals: ${what} has a line of more than ${text_literals_bytes} bytes")
      endif()
      math(EXPR cut "${cut} + 1")
    endif()
    string(SUBSTRING "${text}" 0 ${cut} piece)
    string(SUBSTRING "${text}" ${cut} -1 text)
    string(LENGTH "${text}" length)
    string(APPEND literals "    R\"${delimiter}(${piece})${delimiter}\"sv,\n")
  endwhile()
  set(${variable} "${literals}" PARENT_SCOPE)
endfunction()
