#!/usr/bin/env bash
# Installs the built tree into a temporary place, builds tests/package against it and runs the result.
set -euo pipefail
cmake=$1 build=$2 source=$3 prefix_path=$4 flags=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/installed" >"$work/log"
mkdir "$work/project"
cp "$source/tests/package/CMakeLists.txt" "$source/examples/quickstart.cpp" "$work/project"
"$cmake" -G Ninja -S "$work/project" -B "$work/project/build" -DCMAKE_BUILD_TYPE=Release \
  -DQUICKSTART=quickstart.cpp "-DCMAKE_CXX_FLAGS=$flags" "-DCMAKE_PREFIX_PATH=$work/installed;$prefix_path" >>"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
"$cmake" --build "$work/project/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# Headers must come from the installed place: the source tree is not on the include path.
if grep -q -- "-I$source" "$work/project/build/build.ninja"; then
  echo "the installed package refers to the source tree"
  exit 1
fi
"$work/project/build/quickstart" | grep "is ahead after 80 steps"
