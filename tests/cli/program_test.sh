#!/usr/bin/env bash
# The program as people call it: exit codes, messages, JSON.
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "$0")/checks.sh"

expect 0 "bench" --help
expect 0 "0." --version
expect 0 "Usage: gluon"
expect 2 "bench: name what to measure: step, train, smoothness or fit" bench
expect 2 "frobnicate" frobnicate
expect 2 "--frobnicate" bench step --frobnicate
expect 2 "unknown model 'gpt9'; allowed are gpt124m, gpt1b3, cnn" bench step --model gpt9
expect 2 "layers must be in 1..12 for gpt124m (0 is all), got 13" bench step --layers 13
expect 2 "repeats must be >= 1, got 0" bench step --repeats 0
expect 2 "device must be cpu or cuda, got 'tpu'" bench step --device tpu
expect 2 "polar_express" bench step --orthogonalizer householder
expect 2 "the orthogonalizer must be an iteration, got 'svd'" bench step --orthogonalizer svd
expect 2 "--threads" bench step --threads 0
expect 0 "ratio reference/ours" bench step --model cnn --layers 2 --repeats 1
expect 2 "no-such" bench step --model cnn --layers 1 --repeats 1 --momenta no-such
expect 0 '"recorded": 0.' bench step --model cnn --layers 1 --repeats 1 --json
expect 0 "ours with normuon(0.95) decay cautious(0.01)" bench step --model cnn --layers 1 --repeats 1 \
  --normalize 'normuon(0.95)' --decay 'cautious(0.01)'
expect 0 '"name": "ours with sphere auto"' bench step --model cnn --layers 1 --repeats 1 --sphere auto --json
expect 2 "exclude each other, got weight decay 0.1 and sphere auto" bench step --model cnn --decay 0.1 --sphere auto
expect 2 "sphere: expected a number or auto, got 'big'" bench step --model cnn --sphere big
expect 0 '"ratio":' bench step --model cnn --layers 1 --repeats 1 --json

shape=(--layers 1 --width 32 --heads 2 --seq 32 --batch 4)
small=("${shape[@]}" --steps 4)
expect 0 '"tokens_per_second":' bench train --layers 1 --width 32 --heads 2 --seq 32 --repeats 1 --json
expect 2 "data: expected the command tokenize" data
expect 2 "no file matches" train --data "$work/missing.txt"
expect 2 "--steps must be >= 1, got 0" train --steps 0
if ! command -v nvidia-smi >/dev/null; then
  expect 2 "--device cuda: no CUDA device is available" train --device cuda
  expect 2 "--device cuda: no CUDA device is available" bench train --device cuda
  expect 2 "bench step: no CUDA device is available" bench step --device cuda
  expect 2 "--precision bfloat16 needs" train --precision bfloat16
fi
expect 2 "needs the folder of CIFAR-10: --data DIR" train --model cifar-cnn
expect 2 "--resume needs the run directory" train --resume
expect 2 "no file $work/none/config.toml" train --resume --out "$work/none"
printf 'steps=4\nlayers=1\nwidth=32\nheads=2\nseq=32\nbatch=4\n' >"$work/good.toml"
expect 0 "finished after 3 steps" train --config "$work/good.toml" --steps 3 --out "$work/run"
expect 2 "already holds a run (config.toml); resume it with --resume" train "${small[@]}" --out "$work/run"
expect 0 "finished after 3 steps" train --resume --out "$work/run"
expect 2 "belongs to another run: its geometry is" train --resume --out "$work/run" --radius hidden=0.1
expect 2 "another run: its heads is '2', this run has '4'" train --resume --out "$work/run" --heads 4
expect 0 "finished after 4 steps" train --resume --out "$work/run" --steps 4
check "config.toml keeps the old steps" grep -q '^steps=4$' "$work/run/config.toml"
expect 2 "--radius auto: preset unscion has no law for its radii, only sphere has one" \
  train "${small[@]}" --preset unscion --radius auto
expect 2 "--radius auto: preset unscion has no law" train --config "$work/good.toml" --preset unscion --radius auto
expect 0 "sphere auto  radius 0.258457 = 0.45 K^-0.4 with K = 4" \
  train "${small[@]}" --radius auto --out "$work/sphere"
check "--radius auto chooses its preset" grep -q '^preset="sphere"$' "$work/sphere/config.toml"
printf 'steps=4\nradius="auto"\n' >"$work/auto.toml"
expect 0 "0.45 K^-0.4 with K = 4" train --config "$work/auto.toml" "${shape[@]}" --out "$work/sphere2"
expect 0 "sphere," bench train "${shape[@]}" --repeats 1 --radius auto
check "the whole run decays" grep -q "0.0646142" "$work/sphere/log.csv" # a quarter in the last step
expect 2 "--steps must stay 4, from which the radii of the run follow, got 6" \
  train --resume --out "$work/sphere" --steps 6
expect 0 "finished after 4 steps" train "${small[@]}" --preset sphere --radius 'hidden=horizon(0.45,0.4,100)' \
  --schedule constant --out "$work/horizon"
expect 0 "finished after 6 steps" train --resume --out "$work/horizon" --steps 6
expect 0 "factor=0.5" sweep "${small[@]}" --preset sphere --radius factor=0.5,1 --out "$work/factors"
expect 0 "validation loss" eval "$work/run"
expect 0 "int main" sample "$work/run" --prompt "int main" --count 5
expect 2 "holds no run" sample "$work/nowhere"

# A number of sgd is a learning rate, which is a radius rule.
expect 0 "steepest(0.5)  " train "${shape[@]}" --steps 2 --preset sgd --radius all=0.5 --weight-decay 0.125 --out "$work/sgd"
expect 0 "weight decay 0.125" train --resume --out "$work/sgd" --steps 3
expect 2 "preset sgd takes --radius instead" train --preset sgd --lr 0.5
# Normalised directions and a decay on a schedule of its own belong to a run.
expect 0 "normalize normuon(0.95)  decay cautious(0.1,linear(4,4,0))" \
  train "${shape[@]}" --steps 2 --preset normuon --decay 'cautious(0.1,linear(4,4))' --out "$work/normuon"
expect 2 "another run: its geometry is" train --resume --out "$work/normuon" --steps 3 --normalize 'adamuon(0.95)'
expect 0 "finished after 3 steps" train --resume --out "$work/normuon" --steps 3
expect 2 "--normalize has no effect on preset adamw" train --preset adamw --normalize 'normuon(0.9)'
# A scale of Muon is part of its name, but its parentheses are not part of a folder's.
expect 0 "finished after 2 steps" train "${shape[@]}" --steps 2 --preset 'muon(none)' --lr 0.01
check "the run has no parentheses in its name" [ -e runs/nanogpt-tiny-muon-none-1/config.toml ]
expect 0 "finished after 3 steps" train --resume --out runs/nanogpt-tiny-muon-none-1 --steps 3
expect 2 "another run: its geometry is" train --resume --out runs/nanogpt-tiny-muon-none-1 --preset muon
expect 2 "unknown scale in 'muon(adam)'; allowed are muon(none), muon(aspect), muon(match_adam)" train --preset 'muon(adam)'

# Logits are clipped without QK norm only; both belong to the run.
expect 2 "--qk-clip 100 clips attention logits, which QK norm bounds already: give --qk-norm 0" train "${small[@]}" --qk-clip 100
expect 2 "give --qk-norm 0, or --qk-clip 0 for its steps alone" train "${small[@]}" --preset muonclip
expect 0 "finished after 4 steps" train "${small[@]}" --preset muonclip --qk-norm 0 --lr 0.01 --out "$work/clipped"
expect 2 "another run: its qk-clip is '100', this run has '50'" train --resume --out "$work/clipped" --qk-clip 50
expect 2 "another run: its qk-norm is '1', this run has '0'" train --resume --out "$work/run" --qk-norm 0
expect 0 "finished after 6 steps" train --resume --out "$work/clipped" --steps 6
expect 0 "validation loss" eval "$work/clipped"
expect 0 "int main" sample "$work/clipped" --prompt "int main" --count 5

# Any name of a file that TOML can hold works in every command; another one is refused before the first step.
odd=$'a #1 "b" \'c\'\\ = [d]\ne.txt'
seq 3000 >"$odd"
expect 0 "finished after 4 steps" train "${small[@]}" --smoothness-every 2 --data "$odd" --out "$work/odd"
expect 0 "finished after 6 steps" train --resume --out "$work/odd" --steps 6
expect 0 "validation loss" eval "$work/odd"
expect 0 "prompted" sample "$work/odd" --prompt prompted --count 2
expect 0 "next run:" tune "$work/odd"
expect 0 "finished after 2 steps" train --config "$work/odd/tuned.toml" --steps 2 --out "$work/odd2"
expect 0 "[1/1]" sweep "${small[@]}" --data "$odd" --radius hidden=0.1 --out "$work/odd3"
expect 0 "validation loss" report "$work/odd" --text
seq 3000 >$'not\xfftext'
expect 2 "--data: expected text in UTF-8" train "${small[@]}" --data $'not\xfftext' --out "$work/odd4"
check "a refused run left a folder" [ ! -e "$work/odd4" ]
mkdir "$work/mine"
echo precious >"$work/mine/facts.json"
expect 2 "holds a facts.json that a run would overwrite" train "${small[@]}" --out "$work/mine"
check "a foreign file was changed" [ "$(cat "$work/mine/facts.json")" = precious ]

# Smoothness: record, fit, tune, train with the tuned config, sweep.
expect 0 "gluon fit $work/recorded" train "${shape[@]}" --steps 8 --smoothness-every 2 --out "$work/recorded"
expect 0 "estimator: same_batch" fit "$work/recorded"
expect 0 "next run: gluon train --config $work/recorded/tuned.toml" tune "$work/recorded"
expect 0 '"estimator": "same_batch"' tune "$work/recorded" --json --out "$work/tuned.toml"
expect 0 "finished after 8 steps" train --config "$work/tuned.toml" --out "$work/tuned"
expect 0 "gluon fit $work/noisy" train "${shape[@]}" --steps 8 --smoothness-every 2 --smoothness-mode consecutive --out "$work/noisy"
expect 0 "is about 0.7 for any radius" tune "$work/noisy"
expect 0 "gluon fit $work/adam" train "${shape[@]}" --steps 8 --preset adamw --smoothness-every 2 --out "$work/adam"
expect 0 "the ratios between the groups, not their sizes" tune "$work/adam"
expect 2 "holds no smoothness.csv" tune "$work/run"
expect 0 "validation loss after 4 steps" sweep "${small[@]}" --radius hidden=0.01,0.02 embedding=0.5,1 --out "$work/sweep"
expect 0 "[1/1] hidden=0.01" sweep --config "$work/tuned.toml" --radius hidden=0.01 --out "$work/sweep3"
expect 2 "must not be the config.toml of a run" tune "$work/recorded" --out "$work/recorded/config.toml"
cp "$work/recorded/config.toml" "$work/before.toml"
expect 2 "smoothness" train --resume --out "$work/recorded" --steps 9 --smoothness-mode consecutive
expect 2 "smoothness" train --resume --out "$work/recorded" --steps 9 --smoothness-geometry normalized_descent
check "a refused resume changed config.toml" cmp "$work/before.toml" "$work/recorded/config.toml"
expect 2 "excludes" train --resume --out "$work/recorded" --config "$work/before.toml"
expect 2 "--seed: must be in 0..18446744073709551615, got -1" train "${small[@]}" --seed -1
expect 2 "--seed: must be in 0..18446744073709551615, got 99999999999999999999" train "${small[@]}" --seed 99999999999999999999
expect 2 "--top-k: must be in -9223372036854775808..9223372036854775807, got 9999" sample "$work/run" --top-k 99999999999999999999
expect 2 "--samples: must be in -9223372036854775808..9223372036854775807, got 9999" bench fit --samples 99999999999999999999
expect 2 "--rank-timeout must be in 0.001..1e6 seconds, got nan" train --rank-timeout nan
expect 2 "--sample must be in 0..16777216, got -1" train "${small[@]}" --sample -1
expect 2 "--sample must be in 0..16777216, got 9223372036854775807" train "${small[@]}" --sample 9223372036854775807
expect 2 "count must be in 0..16777216, got 9223372036854775807" sample "$work/run" --count 9223372036854775807
expect 0 "abc" sample "$work/run" --prompt abc --count 2 --temperature 1e-300
expect 2 "--radius hidden must be in 1e-30..1e+30" train "${small[@]}" --radius hidden=1e39
expect 0 "[1/2] hidden=1e+39  is left out" sweep "${small[@]}" --radius hidden=1e39,0.01 --out "$work/sweep4"
expect 2 "--lr must be finite and > 0, got inf" train "${small[@]}" --preset adamw --lr inf

# Gradients with NaN or Inf.
broken=("${small[@]}" --preset sign_descent --radius all=1e20)
expect 2 "holds NaN or Inf at step 1; nothing was updated" train "${broken[@]}" --out "$work/nan1"
expect 0 "failed after step 1 of 4: Optimizer: the gradient of layer" report "$work/nan1" --text
expect 0 "finished, step 8 of 8" report "$work/tuned" --text
expect 2 "after 2 batches left out in a row (--nan-limit)" train "${broken[@]}" --on-nan skip --nan-limit 2 --out "$work/nan2"
expect 0 "back to step 0 with all radii times 0.5" train "${broken[@]}" --on-nan rollback --out "$work/nan3"
check "rollbacks are not in facts.json" grep -q '"rollbacks": [1-9]' "$work/nan3/facts.json"
expect 0 "finished after 6 steps" train --resume --out "$work/nan3" --steps 6

# Empty values and octal numbers, which CLI11 would read as something else, and flags without an effect.
for flag in --layers --seed --sample; do
  expect 2 "$flag: expected a whole number without leading zeros, got ''" train "${small[@]:4}" $flag ''
done
for flag in --clip --lr --rank-timeout; do expect 2 "$flag: expected a number, got ''" train "${small[@]}" $flag ''; done
expect 2 "--count: expected a whole number without leading zeros, got '010'" sample "$work/run" --count 010
expect 2 "--out: expected a path, got an empty one" train "${small[@]}" --out ''
expect 2 "--radius conv=1 has no effect" train "${small[@]}" --radius conv=1
expect 2 "--clip has no effect on preset unscion" train "${small[@]}" --clip 2
expect 2 "--rank-timeout has no effect without --ranks" train "${small[@]}" --rank-timeout 5

# Sizes: refused before anything is allocated.
expect 2 "bytes of memory, available are" train --layers 16777216 --width 16384
limited_memory() { (ulimit -v 8000000; "$gluon" "$@"); }
gluon=$program
if limited_memory --version >/dev/null 2>&1; then # sanitizers reserve more than that
  program=limited_memory expect 2 "bytes of memory, available are" train --vocabulary 16777216
fi
expect 2 "config: /dev/zero has more than 1048576 bytes" train --config /dev/zero
printf '[%.0s' $(seq 100000) >"$work/nested.toml"
expect 2 "line 1: expected key=value, got '[[[" train --config "$work/nested.toml"
check "a message quotes a whole file" [ "$(wc -c <"$work/errors")" -lt 3000 ]
printf '[a.b]\nsteps=4\n' >"$work/nested.toml"
expect 2 "line 1: expected key=value, got '[a.b]'" train --config "$work/nested.toml"

# Nothing that a terminal obeys.
expect 2 "\\x1b[31mred" train "${small[@]}" --data $'\e[31mred'
expect 2 "--sample: cifar-cnn is not a language model" train --model cifar-cnn --data "$work" --sample 5
expect 2 "layers must be in 1..1 for embedding" bench step --model embedding --layers -5
expect 2 "gluon: " train "${small[@]}" --out "$work/$(printf 'x%.0s' $(seq 300))"
expect 0 "one pass" bench fit --samples 1000 --repeats 1
expect 2 "samples must be >= 2, got 1" bench fit --samples 1
expect 0 "overhead" bench smoothness "${small[@]}" --smoothness-every 2 --windows 1
expect 2 "bench smoothness: --smoothness-start must be 0, got 2" bench smoothness "${small[@]}" --smoothness-every 2 --smoothness-start 2

# Reports.
cp -r "$work/recorded" "$work/unsampled"
: >"$work/unsampled/smoothness.csv"
expect 0 "validation loss" report "$work/unsampled" --text
expect 0 "finished after 9 steps" train --resume --out "$work/unsampled" --steps 9
expect 0 "validation loss" report "$work/run" "$work/recorded" "$work/sweep" --text
expect 0 "not fitted" report "$work/recorded" --text --skip-first 3
expect 0 "figures to $work/figures" report "$work/recorded" "$work/sweep" --figures "$work/figures"
[ -s "$work/figures/loss.svg" ] && [ -s "$work/figures/sweep-sweep.csv" ] || { echo "FAILED: figures are missing"; failed=$((failed + 1)); }
expect 0 "figures to $work/narrow" report "$work/recorded" --figures "$work/narrow" --figure-width column
check "a column has another width" grep -q 'width="3.30in"' "$work/narrow/loss.svg"
expect 2 "--figure-width must be column or page, got 'wide'" report "$work/recorded" --figures "$work/wide" --figure-width wide
check "refused figures were written" [ ! -e "$work/wide" ]
expect 2 "--figure-width requires --figures" report "$work/recorded" --figure-width page
expect 2 "missing does not exist" report "$work/run" "$work/missing" --json "$work/report.json"
check "a refused report was written" [ ! -e "$work/report.json" ]
mkdir -p "$work/folder/empty"
expect 2 "folder holds neither a run (config.toml) nor a sweep (sweep.csv), and no folder in it does" report "$work/folder" --text
cp -r "$work/recorded" "$work/sweep" "$work/folder/"
expect 0 "skipped: $work/folder/empty holds neither a run" report "$work/folder" --text
expect 0 "  best" report "$work/folder" --text
expect 0 "wrote 1 run to $work/board" report "$work/recorded" --tensorboard "$work/board"
check "events are missing" [ -s "$work/board/recorded/events.out.tfevents.gluon" ]
expect 0 "finished after 2 steps" train "${shape[@]}" --steps 2 --tensorboard --out "$work/events"
before=$(wc -c <"$work/events/events.out.tfevents.gluon")
expect 0 "finished after 4 steps" train --resume --out "$work/events" --steps 4
after=$(wc -c <"$work/events/events.out.tfevents.gluon")
check "a resumed run left its events behind" [ "$after" -gt "$before" ]
expect 2 "--json must end in .json" report "$work/run" --json "$work/report.txt"
for file in facts status; do
  expect 2 "--json must not overwrite a run's $file.json" report "$work/run" --json "$work/run/$file.json"
done
expect 2 "folder $work/none does not exist" report "$work/run" --json "$work/none/report.json"
expect 2 "--out excludes --text" report "$work/run" --text --out "$work/report.html"
expect 2 "runs is required" report
expect 0 "" report "$work/recorded" --json "$work/report.json"
check "the report has no routing" grep -q '"routing":' "$work/report.json"
expect 2 "--token must have at least 16 characters, got 3" watch "$work/recorded" --host 0.0.0.0 --token abc
expect 2 "--port" watch "$work/recorded" --port http
expect 2 "runs is required" watch
# The page, or the message that the program was built without it.
if page=$("$program" report "$work/recorded" --out "$work/report.html" 2>&1); then
  expect 0 "1 run, " report "$work/recorded" --out "$work/report.html"
  expect 2 "--out must end in .html" report "$work/recorded" --out "$work/recorded/log.csv"
  expect 0 "report            $work/shown/report.html" train "${small[@]}" --report --out "$work/shown"
  check "train --report wrote no page" grep -q '"routing":' "$work/shown/report.html"
  expect 2 "watch: $work/missing/run does not exist, nor does $work/missing" watch "$work/missing/run"
else
  expect 2 "built without the page's charting library" train "${small[@]}" --report --out "$work/shown"
  expect 2 "built without the page's charting library" watch "$work/recorded"
  [[ "$page" == *"built without the page's charting library"* ]] || { echo "FAILED: report: $page"; failed=$((failed + 1)); }
fi

# Tokens beyond the vocabulary: shards of 300 tokens after the header, 60000 (bytes 0x60 0xea) and 1.
shard_of() { # shard_of TOKEN
  printf '\x88\xd8\x34\x01\x01\x00\x00\x00\x2c\x01\x00\x00'
  head -c 1012 /dev/zero
  for _ in $(seq 300); do printf '%b' "$1"; done
}
shard_of '\x60\xea' >"$work/whole.bin"
shard_of '\x01\x00' >"$work/ones.bin"
expect 2 "whole.bin' needs a vocabulary of 60001, the model has 50" \
  train --data "$work/ones.bin" --val-data "$work/whole.bin" --vocabulary 50 --seq 32
expect 2 "needs a vocabulary of 60001, the model has 50304" train --model nanogpt-124m --data "$work/whole.bin" --seq 32
expect 2 "tokens; expected one kind for training and validation" eval "$work/run" --data "$work/whole.bin"

# Values that mean nothing: empty ones, as "$UNSET" gives them, numbers beyond float64, weights that have diverged.
tiny=(--layers 1 --width 8 --heads 1 --seq 8 --batch 2 --steps 1)
expect 2 "expected 0, 1, true, false, on, off, yes or no, got ''" train "${tiny[@]}" --qk-norm ''
expect 2 "expected 0, 1, true, false, on, off, yes or no, got '-1'" train "${tiny[@]}" --qk-norm=-1
expect 2 "is too near to 0 for a number, got 1e-400" train "${tiny[@]}" --preset adamw --lr 1e-400
expect 2 "eps must be in [0, 1e+30], got 1e+300" train "${tiny[@]}" --normalize 'normuon(0.95,1e300)'
expect 2 "the run diverged: after step 1 its validation loss is" train "${tiny[@]}" --preset muon --decay 1e30 \
  --radius hidden=1e30 --out "$work/diverged"
expect 2 "its weights have diverged" eval "$work/diverged"
for flag in --json --figures --tensorboard --out; do
  expect 2 "$flag: expected a path, got an empty one" report "$work/run" "$flag" ''
done
expect 2 "runs: expected a path, got an empty one" watch ''
expect 2 "--token: expected a secret, got an empty one" watch "$work/run" --token ''
expect 0 "finished after 4 steps" train "${small[@]}" --smoothness-every 4 --out "$work/one-sample"
expect 2 "has no layer with L0 and L1: " theory --theorem 1 --run "$work/one-sample" --delta0 1 --eps 0.1

# A full disk while saving, here a limit on the size of files: the old checkpoint survives, and the run goes on.
expect 0 "finished after 4 steps" train "${small[@]}" --out "$work/full"
before=$(cat "$work/full/checkpoint/latest")
limited() { (ulimit -f 16; "$gluon" "$@"); }
program=limited expect 2 "cannot write" train --resume --out "$work/full" --steps 8
check "full disk: another checkpoint" [ "$(cat "$work/full/checkpoint/latest")" = "$before" ]
expect 0 "validation loss" eval "$work/full"
expect 0 "finished after 8 steps" train --resume --out "$work/full" --steps 8

for flag in --figures --tensorboard; do
  limited() { (ulimit -f 1; "$gluon" "$@"); }
  program=limited expect 2 "cannot write" report "$work/recorded" "$flag" "$work/cut"
  check "full disk: nothing is left of $flag" [ -z "$(ls "$work/cut")" ]
  expect 0 "wrote" report "$work/recorded" "$flag" "$work/cut"
  rm -r "$work/cut"
done

# A run that was killed before its first checkpoint starts over; one that has lost its checkpoints does not.
expect 0 "finished after 4 steps" train "${small[@]}" --out "$work/young"
rm -r "$work/young/checkpoint"
expect 2 "has taken 4 steps but has no checkpoint; choose another --out" train --resume --out "$work/young" --steps 9
check "its log is there" [ "$(wc -l <"$work/young/log.csv")" -eq 5 ]
sed -i 's/"finished"/"running"/' "$work/young/status.json"
expect 0 "the run has no checkpoint yet and starts over" train --resume --out "$work/young"
expect 0 "finished after 4 steps" train --resume --out "$work/young"
cp "$work/young/config.toml" "$work/own.toml"
expect 0 "the run has taken all its 4 steps; settings that differ from its own change nothing, and it keeps its own" \
  train --resume --out "$work/young" --schedule constant
check "it keeps its settings" cmp "$work/own.toml" "$work/young/config.toml"
expect 2 "--steps must be at least the 4 the run has taken, got 3" train --resume --out "$work/young" --steps 3
rm -r "$work/young/checkpoint"
expect 2 "has taken 4 steps but has no checkpoint" train --resume --out "$work/young" --save-every 2

# Output that goes nowhere: an error, and a run saves what it has.
"$program" theory --theorem 1 --L0 1 --L1 1 --delta0 1 --eps 1 >/dev/full 2>"$work/said"
[ $? -eq 2 ] && grep -q "cannot write to the standard output" "$work/said" || { echo "FAILED: a full output"; failed=$((failed + 1)); }
"$program" train "${shape[@]}" --steps 1000000 --eval-every 1 --out "$work/piped" 2>"$work/said" | head -n 60 >/dev/null
[ "${PIPESTATUS[0]}" -eq 2 ] && grep -q "cannot write to the standard output" "$work/said" &&
  compgen -G "$work/piped/checkpoint/step-*.safetensors" >/dev/null || { echo "FAILED: a closed pipe"; failed=$((failed + 1)); }

# timeout(1) sends its signal to the run and to its process group: copies that come at once are one signal.
signal_with_copies() { # signal_with_copies SIGNAL PROCESS: some microseconds apart
  for _ in $(seq 20); do kill "-$1" "$2" 2>/dev/null || break; done
}

# A step that takes hours: the first signal waits for its end, the second does not.
"$program" train "${shape[@]}" --accumulate 1000000 --out "$work/long" >"$work/said" 2>&1 &
long=$!
catches_sigpipe() { (($(sed -n 's/^SigCgt:\t/0x/p' "/proc/$1/status") & 1 << 12)); } # the last one it begins to catch
for _ in $(seq 600); do catches_sigpipe $long && break; sleep 0.1; done
signal_with_copies HUP $long
sleep 3
check "one signal, and its copies, ended a step" kill -0 $long
kill -TERM $long
for _ in $(seq 300); do kill -0 $long 2>/dev/null || break; sleep 0.1; done
kill -KILL $long 2>/dev/null
wait $long
check "two signals did not end a step" [ $? -eq 143 ]

# Ctrl-C twice, at a terminal, needs no pause between them.
check "Ctrl-C twice" presses_ctrl_c 1 "$program" train "${shape[@]}" --accumulate 1000000 --out "$work/pressed"

# A run that is stopped saves and says so in its exit code.
logged() { { wc -l <"$work/stopped/log.csv"; } 2>/dev/null || echo 0; }
stopped=("${shape[@]}" --steps 1000000 --out "$work/stopped")
for signal in HUP=129 INT=130 TERM=143; do
  before=$(logged)
  "$program" train "${stopped[@]}" >"$work/said" 2>&1 &
  child=$!
  for _ in $(seq 600); do [ "$(logged)" -gt $((before + 2)) ] && break; sleep 0.1; done
  signal_with_copies "${signal%=*}" $child
  wait $child
  [ $? -eq "${signal#*=}" ] && grep -q "continue with     gluon train --resume" "$work/said" &&
    [ "$(tail -n 1 "$work/stopped/log.csv" | cut -d, -f1)" -eq "$(sed 's/[^0-9]//g; s/^0*//' "$work/stopped/checkpoint/latest")" ] ||
    { echo "FAILED: stopped by ${signal%=*}: $(tail -n 1 "$work/said")"; failed=$((failed + 1)); }
  stopped=(--resume --out "$work/stopped")
done

# Under nohup, which ignores SIGHUP, the end of a terminal does not end a run.
(trap '' HUP && exec "$program" train "${shape[@]}" --steps 1000000 --out "$work/kept") >"$work/said" 2>&1 &
kept=$!
rows() { { wc -l <"$work/kept/log.csv"; } 2>/dev/null || echo 0; }
for _ in $(seq 600); do [ "$(rows)" -gt 2 ] && break; sleep 0.1; done
kill -HUP $kept
before=$(rows)
for _ in $(seq 600); do [ "$(rows)" -gt $((before + 2)) ] && break; sleep 0.1; done
check "SIGHUP under nohup" [ "$(rows)" -gt $((before + 2)) ]
kill -TERM $kept
wait $kept
check "SIGTERM under nohup" [ $? -eq 143 ]

# A run over all its data at once, on other data.
seq 300 >"$work/counted.txt"
seq 500 900 >"$work/other.txt"
expect 0 "finished after 2 steps" train --layers 1 --width 32 --heads 2 --seq 32 --batch 1 --steps 2 --full-batch --data "$work/counted.txt" --out "$work/all"
expect 0 "validation loss" eval "$work/all"
expect 0 "other.txt: 1604 bytes, 50 windows" eval "$work/all" --data "$work/other.txt"
expect 0 "32 training and 2 validation windows of 32" eval "$work/all" --val-tokens 64
expect 0 "other.txt: 1604 bytes, 3 windows" train "${shape[@]}" --steps 1 --data "$work/counted.txt" --val-data "$work/other.txt" --val-tokens 96 --out "$work/validated"
expect 0 "other.txt: 1604 bytes, 3 windows" eval "$work/validated"
expect 2 "the run has not trained on the last 96 tokens of its data, --val-tokens asks for 97" eval "$work/all" --val-tokens 97
expect 2 "--val-tokens must be >= 1, or 0 for all, got -3" eval "$work/all" --val-tokens -3
expect 2 "has 1600 bytes for validation in windows of 32, --val-tokens asks for 1601" eval "$work/all" --data "$work/other.txt" --val-tokens 1601

# Damaged checkpoints: one changed byte, and files of garbage.
cp -r "$work/full" "$work/changed"
for file in "$work"/changed/checkpoint/*.safetensors; do sed -i 's/"gluon.version":"1"/"gluon.version":"9"/' "$file"; done
expect 2 "' is damaged" train --resume --out "$work/changed" --steps 9
printf 'x' >"$work/run/checkpoint/latest"
for file in "$work"/run/checkpoint/*.safetensors; do printf 'garbage' >"$file"; done
expect 2 "checkpoint" eval "$work/run"

all_passed
