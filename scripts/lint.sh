#!/usr/bin/env bash
# Static checks of all tracked files.
#
#   scripts/lint.sh [format|layers|cpp|tidy|shell|python|web]...      all of them without an argument
#
# A missing linter is an error (make lint installs them); with GLUON_SKIP_SETUP=1 it is a message.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}

# without WHAT: what a check returns if its linter is missing.
without() {
  if [ "${GLUON_SKIP_SETUP:-0}" = 1 ]; then
    echo "lint: skipped: $1 is not installed"
  else
    echo "lint: $1 is not installed; make lint installs it"
    return 1
  fi
}

# each FILES COMMAND...: the command with so many of the files on the standard input at a time, in parallel.
each() { xargs -r -0 -n "$1" -P "$jobs" "${@:2}"; }

format() {
  command -v clang-format >/dev/null || { without clang-format; return; }
  scripts/format.sh --check
}

# The order of the library's folders.
layers() { python3 scripts/check_layers.py; }

# cppcheck reads every source without the headers of others; .cppcheck says what it leaves out, and why.
cpp() {
  command -v cppcheck >/dev/null || { without cppcheck; return; }
  git ls-files -z '*.cpp' | each 20 cppcheck --quiet --std=c++20 --language=c++ --library=googletest \
    --enable=warning,performance,portability --suppressions-list=.cppcheck --inline-suppr --error-exitcode=1 -I .
}

# clang-tidy parses what it reads: LibTorch's headers would take minutes, and omp.h is the compiler's own, so it reads
# sources that do without them.
tidy() {
  command -v clang-tidy >/dev/null || { without clang-tidy; return; }
  git ls-files -z gluon/theory/'*.cpp' gluon/fit/'*.cpp' gluon/core/spec.cpp \
    gluon/lmo/orthogonalize/coefficients.cpp gluon/radius/schedule.cpp gluon/smoothness/trajectory.cpp |
    each 3 bash -c 'clang-tidy --quiet --warnings-as-errors="*" "$@" -- -std=c++20 -fopenmp -I. 2>/dev/null' clang-tidy
}

shell() {
  command -v shellcheck >/dev/null || { without shellcheck; return; }
  git ls-files -z .ci/run '*.sh' | each 50 shellcheck --severity=warning
}

python() {
  command -v pyflakes3 >/dev/null || { without pyflakes3; return; }
  git ls-files -z '*.py' | each 100 pyflakes3
}

web() {
  local tsc=web/node_modules/typescript/bin/tsc
  # Without npm's registry the page is off, as setup has said; everything else works.
  [ -e $tsc ] || { echo "lint: skipped: TypeScript is not installed (web/node_modules)"; return; }
  node $tsc --noEmit -p web
}

[ $# -gt 0 ] || set -- format layers cpp tidy shell python web
failed=()
for check in "$@"; do
  "$check" || failed+=("$check")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: failed: ${failed[*]}"
  exit 1
fi
echo "lint: passed: $*"
