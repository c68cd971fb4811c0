#!/usr/bin/env bash
# The program as people call it: exit codes, messages, JSON.
set -u
program=$1
failed=0
passed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

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
expect 2 "bench: name what to measure: step or train" bench
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

small=(--layers 1 --width 32 --heads 2 --seq 32 --batch 4 --steps 4)
expect 0 '"tokens_per_second":' bench train --layers 1 --width 32 --heads 2 --seq 32 --repeats 1 --json
expect 2 "data: name what to do: tokenize or inspect" data
expect 2 "cannot open file" data inspect "$work/missing"
expect 2 "no file matches" train --data "$work/missing.txt"
expect 2 "--steps must be >= 1, got 0" train --steps 0
expect 2 "heads" train --layers 1 --width 30 --heads 4
expect 2 "unknown name 'lion'; allowed are muon" train --preset lion
expect 2 "unknown radius 'hiden'" train --radius hiden=1
expect 2 "needs the folder of CIFAR-10: --data DIR" train --model cifar-cnn
expect 2 "--resume needs the run directory" train --resume
expect 2 "no file $work/none/config.toml" train --resume --out "$work/none"
printf 'steps=4\nstep-size=3\n' >"$work/bad.toml"
expect 2 "unknown key 'step-size'" train --config "$work/bad.toml"
printf 'steps=4\nlayers=1\nwidth=32\nheads=2\nseq=32\nbatch=4\n' >"$work/good.toml"
expect 0 "finished after 3 steps" train --config "$work/good.toml" --steps 3 --out "$work/run"
expect 2 "holds a run already; resume it with --resume" train "${small[@]}" --out "$work/run"
expect 0 "finished after 3 steps" train --resume --out "$work/run"
expect 2 "belongs to another run" train --resume --out "$work/run" --preset muon
expect 0 "validation loss" eval "$work/run"
expect 0 "int main" sample "$work/run" --prompt "int main" --count 5
expect 2 "holds no run" sample "$work/nowhere"
printf 'x' >"$work/run/checkpoint/latest"
for file in "$work"/run/checkpoint/*.safetensors; do printf 'garbage' >"$file"; done
expect 2 "checkpoint" eval "$work/run"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
