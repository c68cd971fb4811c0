#!/usr/bin/env bash
# Formats all C++ sources; with --check only says which ones would change and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
files=$(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
if [ "${1:-}" = "--check" ]; then
  echo "$files" | xargs -r clang-format --dry-run -Werror
else
  echo "$files" | xargs -r clang-format -i
fi
