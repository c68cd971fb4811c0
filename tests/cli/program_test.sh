#!/usr/bin/env bash
# The program as people call it: exit codes, messages, JSON.
set -u
program=$1
failed=0
passed=0

# expect CODE TEXT ARGUMENTS...: the exit code, and a text somewhere in the output.
expect() {
  local code=$1 text=$2
  shift 2
  local output status
  output=$("$program" "$@" 2>&1)
  status=$?
  if [ "$status" -eq "$code" ] && [[ "$output" == *"$text"* ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: gluon %s\n  expected exit %s and "%s"\n  got exit %s and:\n%s\n' "$*" "$code" "$text" "$status" "$output"
  fi
}

expect 0 "bench" --help
expect 0 "0." --version
expect 0 "Usage: gluon"
expect 2 "bench: name what to measure: step" bench
expect 2 "frobnicate" frobnicate
expect 2 "--frobnicate" bench step --frobnicate
expect 2 "unknown model 'gpt9'; allowed are gpt124m, gpt1b3, cnn" bench step --model gpt9
expect 2 "layers must be in 1..12 for gpt124m (0 is all), got 13" bench step --layers 13
expect 2 "repeats must be >= 1, got 0" bench step --repeats 0
expect 2 "device must be cpu, got 'tpu'" bench step --device tpu
expect 2 "polar_express" bench step --orthogonalizer householder
expect 2 "the orthogonalizer must be an iteration, got 'svd'" bench step --orthogonalizer svd
expect 2 "--threads" bench step --threads 0
expect 0 "ratio reference/ours" bench step --model cnn --layers 2 --repeats 1
expect 0 '"ratio":' bench step --model cnn --layers 1 --repeats 1 --json

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
