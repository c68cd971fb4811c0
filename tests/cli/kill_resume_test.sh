#!/usr/bin/env bash
# A run killed with SIGKILL at random moments and resumed each time ends with the bytes of the uninterrupted run.
set -euo pipefail
program=$1
kills=${2:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(--threads 1 --layers 1 --width 32 --heads 2 --seq 32 --batch 4 --steps 2000 --save-every 10 --eval-every 1000)

"$program" train "${flags[@]}" --out "$work/whole" >"$work/whole.txt" 2>&1
RANDOM=1
killed=0
"$program" train "${flags[@]}" --out "$work/run" >"$work/run.txt" 2>&1 &
while true; do
  child=$!
  # Long enough to take a few steps, short enough to be cut off in the middle of one or of a save.
  sleep "0.$((300 + RANDOM % 350))"
  if [ "$killed" -lt "$kills" ] && kill -9 "$child" 2>/dev/null; then
    killed=$((killed + 1))
  fi
  status=0
  wait "$child" 2>/dev/null || status=$?
  if [ "$status" -eq 0 ]; then break; fi
  if [ "$status" -ne 137 ]; then
    echo "after $killed kills the run ended by itself with $status:"
    tail -n 5 "$work/run.txt"
    exit 1
  fi
  # Whole files alone count: a kill in the middle of the first save leaves a temporary one.
  if compgen -G "$work/run/checkpoint/step-????????.safetensors" >/dev/null; then
    "$program" train --threads 1 --resume --out "$work/run" >>"$work/run.txt" 2>&1 &
  else
    rm -rf "$work/run"
    "$program" train "${flags[@]}" --out "$work/run" >>"$work/run.txt" 2>&1 &
  fi
done
if [ "$killed" -lt $((kills / 2)) ]; then
  echo "only $killed of $kills kills before the end: the run is too short for this machine"
  exit 1
fi
cmp "$work/whole/checkpoint/step-00002000.safetensors" "$work/run/checkpoint/step-00002000.safetensors"
[ "$(wc -l <"$work/run/log.csv")" -eq 2001 ]
echo "killed $killed times, the same bytes"
