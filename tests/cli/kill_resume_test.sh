#!/usr/bin/env bash
# A run killed with SIGKILL at random moments and resumed each time ends with the bytes of the uninterrupted run.
set -euo pipefail
program=$1
kills=${2:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(--threads 1 --layers 1 --width 32 --heads 2 --seq 32 --batch 4 --steps 2000 --save-every 10 --eval-every 1000)

lines() { { wc -l <"$work/run/log.csv"; } 2>/dev/null || echo 0; }

# await PROCESS LINES: until the log has so many, or the run ends before.
await() {
  local deadline=$((SECONDS + 60))
  while [ "$(lines)" -lt "$2" ] && kill -0 "$1" 2>/dev/null; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "after $killed kills the log had $(lines) lines 60 s after a start, expected $2:"
      tail -n 5 "$work/run.txt"
      kill -9 "$1"
      exit 1
    fi
    sleep 0.02
  done
}

"$program" train "${flags[@]}" --out "$work/whole" >"$work/whole.txt" 2>&1
RANDOM=1
killed=0
before=0
: >"$work/resumed.txt"
"$program" train "${flags[@]}" --out "$work/run" >"$work/run.txt" 2>&1 &
while true; do
  child=$!
  if [ "$killed" -lt "$kills" ]; then
    # Steps that no run before it took, then any moment of a step or of a save.
    await "$child" $((before + 10))
    sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
    if kill -9 "$child" 2>/dev/null; then killed=$((killed + 1)); fi
  fi
  status=0
  wait "$child" 2>/dev/null || status=$?
  if [ "$status" -eq 0 ]; then break; fi
  if [ "$status" -ne 137 ]; then
    echo "after $killed kills the run ended by itself with $status:"
    tail -n 5 "$work/run.txt"
    exit 1
  fi
  before=$(lines)
  cat "$work/run/checkpoint/latest" >>"$work/resumed.txt" 2>/dev/null || echo "none yet" >>"$work/resumed.txt"
  "$program" train --threads 1 --resume --out "$work/run" >>"$work/run.txt" 2>&1 &
done
if [ "$killed" -lt $((kills / 2)) ]; then
  echo "only $killed of $kills kills before the end: the run is too short for this machine"
  exit 1
fi
resumes=$(sort -u "$work/resumed.txt" | wc -l)
if [ "$resumes" -lt $((killed / 2)) ]; then
  echo "killed $killed times, but the resumes began at $resumes different steps only:"
  uniq -c "$work/resumed.txt"
  exit 1
fi
cmp "$work/whole/checkpoint/step-00002000.safetensors" "$work/run/checkpoint/step-00002000.safetensors"
[ "$(wc -l <"$work/run/log.csv")" -eq 2001 ]
echo "killed $killed times, resumed at $resumes different steps, the same bytes"
