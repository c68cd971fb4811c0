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
expect 2 "belongs to another run: its geometry is" train --resume --out "$work/run" --preset muon
expect 2 "belongs to another run: its geometry is" train --resume --out "$work/run" --width 64
expect 2 "belongs to another run: its geometry is" train --resume --out "$work/run" --radius hidden=0.1
expect 0 "finished after 4 steps" train --resume --out "$work/run" --steps 4
grep -q '^steps=4$' "$work/run/config.toml" || { echo "FAILED: config.toml keeps the old steps"; failed=$((failed + 1)); }
expect 0 "validation loss" eval "$work/run"
expect 0 "int main" sample "$work/run" --prompt "int main" --count 5
expect 2 "holds no run" sample "$work/nowhere"

# Foreign and damaged data.
: >"$work/empty.txt"
expect 2 "is empty" train --data "$work/empty.txt" "${small[@]}"
printf 'short' >"$work/short.txt"
expect 2 "is too short" train --data "$work/short.txt" "${small[@]}"
printf 'not a shard at all' >"$work/foreign.bin"
expect 2 "foreign.bin" train --data "$work/foreign.bin" "${small[@]}"
# shard FILE COUNT: a shard whose header promises COUNT tokens, followed by 300 tokens 60000 (bytes 0x60 0xea).
shard() {
  { printf '\x88\xd8\x34\x01\x01\x00\x00\x00'; printf "\\x$(printf %02x $(($2 % 256)))\\x$(printf %02x $(($2 / 256)))\x00\x00"
    head -c 1012 /dev/zero; for _ in $(seq 300); do printf '\x60\xea'; done; } >"$1"
}
shard "$work/whole.bin" 300
shard "$work/truncated.bin" 400
expect 0 "300 tokens" data inspect "$work/whole.bin"
expect 2 "truncated.bin" train --data "$work/truncated.bin" "${small[@]}"
expect 2 "needs a vocabulary of 60001, the model has 50304" train --model nanogpt-124m --data "$work/whole.bin" --seq 32
expect 2 "needs a vocabulary of 60001, the model has 256" eval "$work/run" --data "$work/whole.bin"

# A full disk while saving, here a limit on the size of files: the old checkpoint survives, and the run goes on.
expect 0 "finished after 4 steps" train "${small[@]}" --out "$work/full"
before=$(cat "$work/full/checkpoint/latest")
expect_full() {
  local output status
  output=$(trap '' XFSZ; ulimit -f 16; "$program" train --resume --out "$work/full" --steps 8 2>&1)
  status=$?
  if [ "$status" -eq 2 ] && [[ "$output" == *"cannot write"* ]] && [ "$(cat "$work/full/checkpoint/latest")" = "$before" ] &&
    "$program" eval "$work/full" >/dev/null; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: full disk: exit %s\n%s\n' "$status" "$output"
  fi
}
expect_full
expect 0 "finished after 8 steps" train --resume --out "$work/full" --steps 8

# A newer and a damaged checkpoint.
cp -r "$work/full" "$work/newer"
for file in "$work"/newer/checkpoint/*.safetensors; do sed -i 's/"gluon.version":"1"/"gluon.version":"9"/' "$file"; done
expect 2 "checkpoint" train --resume --out "$work/newer" --steps 9
printf 'x' >"$work/run/checkpoint/latest"
for file in "$work"/run/checkpoint/*.safetensors; do printf 'garbage' >"$file"; done
expect 2 "checkpoint" eval "$work/run"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
