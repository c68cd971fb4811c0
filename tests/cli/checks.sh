# shellcheck shell=bash
# Sourced by the tests that call the program: an empty folder to work in, which their end removes together with the jobs
# that are left, and a count of checks.
set -u
# shellcheck disable=SC2034 # the tests call it
program=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
passed=0
failed=0
clean_up() {
  local job
  for job in $(jobs -p); do kill -KILL "$job" 2>/dev/null; done
  rm -rf "$work"
}
trap clean_up EXIT
cd "$work" || exit 1

show_output() { :; } # what to print after a failed check; tests replace it

# check WHAT COMMAND...: counts whether the command succeeds.
check() {
  local what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s: %s\n' "$what" "$*"
    show_output
  fi
}

# expect CODE TEXT ARGUMENTS...: the exit code, and a text somewhere in the output; with code 2 it is one line.
expect() {
  local code=$1 text=$2
  shift 2
  local output status
  output=$("$program" "$@" 2>"$work/errors")
  status=$?
  output+=$'\n'$(cat "$work/errors")
  if [ "$status" -eq "$code" ] && [[ "$output" == *"$text"* ]] &&
    { [ "$code" -ne 2 ] || [ "$(wc -l <"$work/errors")" -eq 1 ]; }; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: gluon %s\n  expected exit %s and "%s"\n  got exit %s and:\n%s\n' "$*" "$code" "$text" "$status" "$output"
  fi
}

# presses_ctrl_c PROCESSES COMMAND...: whether Ctrl-C twice at its terminal, and not once, ends the command.
presses_ctrl_c() {
  python3 "$tests/press_ctrl_c.py" "$@"
  [ $? -eq 130 ]
}

# The last command of a test.
all_passed() {
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}
