#!/usr/bin/env bash
# README.md stays short, its C++ lines are lines of examples/quickstart.cpp, and links and anchors resolve.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
fail() { echo "$1"; failed=1; }

at_most() {
  local lines
  lines=$(wc -l < "$1")
  [ "$lines" -le "$2" ] || fail "$1 has $lines lines, at most $2 are allowed"
}
at_most README.md 170
at_most examples/quickstart.cpp 40

trimmed() { sed -E 's/^ +//; s| *//.*||; /^$/d'; }
missing=$(awk '/^```cpp$/ {inside = 1; next} /^```$/ {inside = 0} inside' README.md | trimmed |
  grep -vxFf <(trimmed < examples/quickstart.cpp) || true)
[ -z "$missing" ] || fail "README.md: not in examples/quickstart.cpp: $missing"

# The anchors of a page's headings, as GitHub makes them.
anchors() {
  awk '/^```/ {code = !code} !code && /^#+ /' "$1" | tr '[:upper:]' '[:lower:]' |
    sed -E 's/^#+ //; s/[^a-z0-9 _-]//g; s/ /-/g'
}
for page in README.md CONTRIBUTING.md CHANGELOG.md docs/*.md; do
  while read -r target; do
    file=${target%%#*} anchor=${target#*#}
    path=$([ -z "$file" ] && echo "$page" || echo "$(dirname "$page")/$file")
    if [ ! -e "$path" ]; then
      fail "$page: no file for the link '$target'"
    elif [ "$anchor" != "$target" ] && ! anchors "$path" | grep -xF -- "$anchor" > /dev/null; then
      fail "$page: no heading for the link '$target'"
    fi
  done < <(grep -oE '\]\([^):]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//')
done
while read -r header; do
  [ -e "gluon/$header" ] || fail "docs/notation.md: no header gluon/$header"
done < <(grep -oE '`[a-z_/]+\.h`' docs/notation.md | tr -d '`')
exit $failed
