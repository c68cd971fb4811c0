#!/usr/bin/env bash
# Installs what is missing to build, test and run Gluon on Debian 12, and says what it does. Names of further
# packages may follow: scripts/setup.sh clang-format
set -euo pipefail

packages=(
  build-essential cmake ninja-build git
  libtorch-dev libopenblas-openmp-dev
  libcli11-dev nlohmann-json3-dev zlib1g-dev liblzma-dev libpcre2-dev pkg-config
  libgtest-dev
  "$@"
)

# The report's page is bundled from npm packages at build time; without them the program is built without the page.
install_page_packages() {
  local web
  web=$(cd "$(dirname "${BASH_SOURCE[0]}")/../web" && pwd)
  if ! command -v npm >/dev/null; then
    echo "setup: no npm; the page of gluon report will be off"
  elif ! cmp -s "$web/package-lock.json" "$web/node_modules/.installed"; then
    echo "setup: installing the packages of the report's page"
    if npm ci --prefix "$web" --silent >/dev/null 2>&1; then
      cp "$web/package-lock.json" "$web/node_modules/.installed"
    else
      echo "setup: npm ci failed in web/; the page of gluon report will be off"
    fi
  fi
}
[ "${GLUON_SKIP_SETUP:-0}" = 1 ] || install_page_packages

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: not a Debian system; install these yourself if the build misses them: ${packages[*]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

# A machine that brings its own LibTorch (the python package) keeps it.
if [ "${GLUON_SKIP_SETUP:-0}" = 1 ]; then
  echo "setup: GLUON_SKIP_SETUP=1, not installing: ${missing[*]}"
  exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: need root or sudo to install: ${missing[*]} (GLUON_SKIP_SETUP=1 goes on without)" >&2; exit 2; }
  sudo=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
