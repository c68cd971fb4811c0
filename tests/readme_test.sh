#!/usr/bin/env bash
# The README's first code block is examples/quickstart.cpp, and that file stays short.
set -euo pipefail
cd "$(dirname "$0")/.."
block=$(awk '/^```cpp$/ {inside = 1; next} /^```$/ && inside {exit} inside' README.md)
if ! diff <(echo "$block") examples/quickstart.cpp; then
  echo "README.md: the first cpp block differs from examples/quickstart.cpp"
  exit 1
fi
lines=$(wc -l < examples/quickstart.cpp)
[ "$lines" -le 40 ] || { echo "examples/quickstart.cpp has $lines lines, at most 40 are allowed"; exit 1; }
