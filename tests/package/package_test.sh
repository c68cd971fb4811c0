#!/usr/bin/env bash
# Installs the built tree into a temporary place and uses it as a user would: with find_package, with pkg-config, and
# with all warnings as errors. Nothing but the public headers, the license and the examples may be installed.
set -euo pipefail
cmake=$1 build=$2 source=$3 prefix_path=$4 flags=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
installed=$work/installed
"$cmake" --install "$build" --prefix "$installed" > "$work/log"

fail() {
  echo "package_test: $1"
  exit 1
}

logged() { "$@" >> "$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }

mkdir "$work/project"
cp "$source/tests/package/CMakeLists.txt" "$work/project"
cp "$installed"/share/doc/*/examples/*.cpp "$work/project"
logged "$cmake" -G Ninja -S "$work/project" -B "$work/project/build" -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_CXX_FLAGS=$flags" "-DCMAKE_PREFIX_PATH=$installed;$prefix_path"
logged "$cmake" --build "$work/project/build"
# The source tree is not on the include path.
if grep -q -- "-I$source" "$work/project/build/build.ninja"; then fail "the installed package refers to the source tree"; fi
"$work/project/build/quickstart" | grep -q "unscion is ahead after 80 steps" || fail "the quickstart does not end ahead"
"$work/project/build/custom_norm" > /dev/null || fail "the installed custom_norm fails"

[ -f "$(echo "$installed"/share/doc/*/LICENSE)" ] || fail "the license is not installed"

if ! command -v pkg-config > /dev/null; then
  echo "package_test: no pkg-config, its part is skipped"
  exit 0
fi
PKG_CONFIG_PATH=$(dirname "$(find "$installed" -name gluon.pc)")
export PKG_CONFIG_PATH
read -ra cflags <<< "$(pkg-config --cflags gluon)"
read -ra libs <<< "$(pkg-config --libs gluon) $flags"
logged c++ -Wall -Wextra -Werror "${cflags[@]}" "$work/project/custom_norm.cpp" -o "$work/by_pkg_config" "${libs[@]}"
"$work/by_pkg_config" > /dev/null || fail "the program built with pkg-config fails"

# The installed headers are those that the three public entries need, no more and no fewer.
for header in gluon/gluon.h gluon/update/torch_optimizer.h gluon/testing/norm_identities.h; do
  echo "#include <$header>"
done > "$work/all.cpp"
c++ "${cflags[@]}" -M "$work/all.cpp" | tr ' ' '\n' | grep -o 'include/gluon/.*' | sort -u > "$work/needed.txt"
(cd "$installed" && find include/gluon -name '*.h' | sort -u) > "$work/installed.txt"
diff "$work/needed.txt" "$work/installed.txt" || fail "installed headers (>) are not those that the public ones need (<)"
