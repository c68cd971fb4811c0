#!/usr/bin/env bash
# Installs what is missing to build, test and run Gluon on Debian 12, and says what it does.
#
#   scripts/setup.sh [--browser] [--lint] [--fuzz] [PACKAGE]...
#
# --browser adds Chromium, for the tests of the report's page; --lint adds the programs that scripts/lint.sh runs;
# --fuzz adds Clang with libFuzzer.
#
# The page is bundled from npm packages at build time. If they, node or Chromium cannot be installed, setup says so and
# goes on: the program is then built without the page, or its browser tests are skipped.
set -euo pipefail

web=$(cd "$(dirname "${BASH_SOURCE[0]}")/../web" && pwd)
packages=(
  build-essential cmake ninja-build git
  libtorch-dev libgloo-dev libopenblas-openmp-dev
  libcli11-dev nlohmann-json3-dev zlib1g-dev liblzma-dev libpcre2-dev pkg-config
  libgtest-dev
)
# Commands count, not packages: node, Chromium and the linters may have come from elsewhere.
optional=()
command -v node >/dev/null && command -v npm >/dev/null || optional+=(nodejs npm)
for argument in "$@"; do
  case $argument in
    --browser) command -v chromium >/dev/null || optional+=(chromium fonts-dejavu-core) ;;
    --lint)
      for linter in clang-format clang-tidy cppcheck shellcheck pyflakes3; do
        command -v "$linter" >/dev/null || packages+=("$linter")
      done
      ;;
    --fuzz) packages+=(clang libclang-rt-dev libomp-dev) ;;
    *) packages+=("$argument") ;;
  esac
done

apt_install() {
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: need root or sudo to install: $* (GLUON_SKIP_SETUP=1 goes on without)" >&2
      return 2
    fi
    sudo=(sudo)
  fi
  echo "setup: installing $*"
  "${sudo[@]}" apt-get update -qq || return
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

install_page_packages() {
  cmp -s "$web/package-lock.json" "$web/node_modules/.installed" && return
  if ! command -v npm >/dev/null; then
    echo "setup: the page of gluon report is off: there is no npm"
    return
  fi
  echo "setup: installing the npm packages of the report's page"
  if npm ci --prefix "$web" --silent --fetch-retries=1 >/dev/null 2>&1; then
    cp "$web/package-lock.json" "$web/node_modules/.installed"
  else
    rm -rf "$web/node_modules"
    echo "setup: the page of gluon report is off: npm ci failed in web/ (is the npm registry reachable?)"
  fi
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: not a Debian system; install these yourself if the build misses them: ${packages[*]} ${optional[*]}"
  [ "${GLUON_SKIP_SETUP:-0}" = 1 ] || install_page_packages
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done

# A machine that brings its own LibTorch (the python package) keeps it.
if [ "${GLUON_SKIP_SETUP:-0}" = 1 ]; then
  absent="${missing[*]} ${optional[*]}"
  [ "$absent" = " " ] || echo "setup: GLUON_SKIP_SETUP=1, not installing: $absent"
  exit 0
fi

# All in one call, which is faster; what is optional must not keep the rest from being installed.
if [ ${#optional[@]} -gt 0 ]; then
  if ! apt_install "${missing[@]}" "${optional[@]}"; then
    [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
    echo "setup: going on without ${optional[*]}"
  fi
elif [ ${#missing[@]} -gt 0 ]; then
  apt_install "${missing[@]}"
fi
install_page_packages
