#!/usr/bin/env bash
# What gluon tune and gluon sweep may write, and what the tuned config keeps of the run's.
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "$0")/checks.sh"

yes 'some words of text to train on, once more' | head -c 4000 >"$work/text.txt"
tiny=(--data "$work/text.txt" --layers 1 --width 8 --heads 1 --seq 8 --batch 2 --val-tokens 64 --threads 1)
measured=("${tiny[@]}" --steps 30 --smoothness-every 1)
has_line() { grep -qxF -- "$2" "$1"; }

# tune replaces configs of its own and nothing else.
expect 0 "finished" train "${measured[@]}" --radius 'hidden=power(0.1)' --out "$work/rule"
cp -r "$work/rule" "$work/before"
for file in config.toml log.csv smoothness.csv facts.json status.json; do
  expect 2 "tune: --out must not be the $file of a run" tune "$work/rule" --out "$work/rule/$file"
done
expect 2 "tune: --out must not be the report.html of a run" tune "$work/rule" --out "$work/rule/report.html"
expect 2 "latest exists and is not a config that gluon tune wrote, with the first line '# by gluon tune'; move it away or choose another --out" \
  tune "$work/rule" --out "$work/rule/checkpoint/latest"
printf 'steps=4\n' >"$work/mine.toml"
expect 2 "mine.toml exists and is not a config that gluon tune wrote" tune "$work/rule" --out "$work/mine.toml"
check "a config of one's own is kept" has_line "$work/mine.toml" steps=4
cp "$work/rule/config.toml" "$work/whole.toml" # all keys in their order, as older versions of tune wrote them, too
expect 2 "whole.toml exists and is not a config that gluon tune wrote, with the first line '# by gluon tune'; move it away" \
  tune "$work/rule" --out "$work/whole.toml"
check "a whole config of one's own is kept" cmp "$work/rule/config.toml" "$work/whole.toml"
check "a refused tune changed the run" diff -r "$work/before" "$work/rule"

# Entries of --radius for groups without a radius stay; the next run takes them.
expect 0 "kept from the run: --radius hidden=power(0.1)" tune "$work/rule"
expect 0 ",hidden=power(0.1) (preset unscion)" tune "$work/rule" # over its own
check "it says who wrote it" [ "$(head -n 1 "$work/rule/tuned.toml")" = "# by gluon tune" ]
sed -i 1d "$work/rule/tuned.toml"
expect 2 "tuned.toml exists and is not a config that gluon tune wrote, with the first line" tune "$work/rule"
rm "$work/rule/tuned.toml"
expect 0 "next run:" tune "$work/rule"
expect 0 "power(0.1)" train --config "$work/rule/tuned.toml" --steps 2 --out "$work/next"
expect 0 "finished" train "${measured[@]}" --radius 'all=power(0.1)' --out "$work/all"
expect 2 "none of the 7 layers gives a radius" tune "$work/all"
expect 0 "finished" train "${measured[@]}" --preset muon --radius 'hidden=power(0.1)' --out "$work/muon"
expect 2 "tune: no radius for hidden layers or convolutions, and preset muon moves no others by radii" tune "$work/muon"
for run in all muon; do check "a tune without radii wrote a config" [ ! -e "$work/$run/tuned.toml" ]; done

# Nothing of AdamW's goes on.
expect 0 "finished" train "${measured[@]}" --preset adamw --lr 0.01 --weight-decay 0.1 --clip 2 --out "$work/adam"
expect 0 "left out: --lr 0.01, --clip 2, --weight-decay 0.1 of AdamW" tune "$work/adam"
check "no weight decay" has_line "$work/adam/tuned.toml" weight-decay=-1
expect 0 "finished" train --config "$work/adam/tuned.toml" --steps 2 --out "$work/next2"

# An empty path, as "$UNSET" gives it, is not the run's own.
for command in eval sample tune fit; do
  expect 2 ": expected a path, got an empty one" "$command" ''
done
expect 2 "--data: expected a path, got an empty one" eval "$work/rule" --data ''
expect 2 "--out: expected a path, got an empty one" tune "$work/rule" --out ''

# What a run cannot be asked for is said before its data are read.
mkdir "$work/images"
printf 'model="cifar-cnn"\ndata="nosuch"\n' >"$work/images/config.toml"
expect 2 "eval: cifar-cnn validates on the test images of its data; it does not take --val-tokens, got 5" \
  eval "$work/images" --val-tokens 5

# Tokens of shards are no text: 300 times the token 1, after the header.
{
  printf '\x88\xd8\x34\x01\x01\x00\x00\x00\x2c\x01\x00\x00'
  head -c 1012 /dev/zero
  for _ in $(seq 300); do printf '\x01\x00'; done
} >"$work/ones.bin"
shards=("${tiny[@]}" --data "$work/ones.bin" --steps 2)
shards=("${shards[@]:2}")
no_text="sample: the run is trained on token shards, '$work/ones.bin', and has no --vocab to turn tokens into text"
expect 0 "finished" train "${shards[@]}" --out "$work/shards"
expect 2 "$no_text" sample "$work/shards" --prompt hi --count 12
expect 2 "$no_text" train "${shards[@]}" --sample 12 --out "$work/no-sample"
check "a refused sample left a run" [ ! -e "$work/no-sample" ]

# A folder holds a run or a sweep.
cells=("${tiny[@]}" --steps 3)
expect 2 "sweep: $work/rule holds a run; choose another --out" sweep "${cells[@]}" --radius hidden=0.1,0.2 --out "$work/rule"
check "a sweep began in a run" [ ! -e "$work/rule/sweep.csv" ]
expect 0 "validation loss after 3 steps" sweep "${cells[@]}" --radius hidden=0.1,0.2 --out "$work/sweep"
expect 2 "run: $work/sweep holds a sweep (sweep.csv); choose another --out" train "${cells[@]}" --out "$work/sweep"
check "a run began in a sweep" [ ! -e "$work/sweep/config.toml" ]

# A cell whose checkpoint found no room is trained again.
full() { (ulimit -f 16; "$gluon" "$@"); }
gluon=$program
wide=(--data "$work/text.txt" --layers 1 --width 64 --heads 1 --seq 8 --batch 2 --threads 1 --steps 3)
program=full expect 2 "cannot write" sweep "${wide[@]}" --radius hidden=0.1 --out "$work/full"
expect 0 "validation loss after 3 steps" sweep "${wide[@]}" --radius hidden=0.1 --out "$work/full"
expect 0 "hidden=0.1  is already finished" sweep "${wide[@]}" --radius hidden=0.1 --out "$work/full"
expect 0 "validation loss" eval "$work/full/hidden=0.1"

# Two sweeps at once in one folder keep each other's rows.
pids=()
for first in 1 5; do
  "$program" sweep "${cells[@]}" --radius "hidden=0.0$first,0.0$((first + 1)),0.0$((first + 2)),0.0$((first + 3))" \
    --out "$work/shared" >/dev/null 2>&1 &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid"
  check "a sweep beside another" [ $? -eq 0 ]
done
check "every row" [ "$(wc -l <"$work/shared/sweep.csv")" -eq 9 ]

# Grids have a bound, which is checked before anything is built. There is no data, lest a failed check trains for days.
cells=(--data "$work/nosuch" --steps 3)
sixty=$(seq -s , 60)
expect 2 "sweep: a grid has at most 10000 cells, these radii give 216000" \
  sweep "${cells[@]}" --radius "hidden=$sixty" "embedding=$sixty" "vector=$sixty" --out "$work/huge"
expect 2 "--radius hidden: a sweep has at most 10000 cells" \
  sweep "${cells[@]}" --radius "hidden=$(seq -s , 10001)" --out "$work/huge"
check "a refused grid left a folder" [ ! -e "$work/huge" ]

all_passed
