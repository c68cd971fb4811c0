#!/usr/bin/env bash
# Several ranks train as one does: the same losses, weights and smoothness samples.
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
small=(--layers 2 --width 64 --heads 2 --seq 64 --eval-every 10)

if "$program" train --ranks 2 --steps 1 "${small[@]}" --out "$work/probe" 2>&1 | grep -q "this build has no gloo"; then
  echo "skipped: this build has no gloo"
  exit 0
fi

run() { # name, flags
  local name=$1
  shift
  # One thread: several threads that wait for each other are slow on a busy machine.
  if ! timeout 300 "$program" train --threads 1 "$@" --out "$work/$name" >>"$work/$name.txt" 2>&1; then
    echo "train $* failed:"
    tail -n 5 "$work/$name.txt"
    exit 1
  fi
}

same_bytes() { # file, run, run
  cmp "$work/$2/$1" "$work/$3/$1" || { echo "$2 and $3 differ in $1"; exit 1; }
}

# Compares the losses of two runs: training to 1e-5, validation to 1e-6.
same_curve() { # run, run
  paste -d, <(cut -d, -f1,3,4 "$work/$1/log.csv") <(cut -d, -f1,3,4 "$work/$2/log.csv") |
    awk -F, -v runs="$1 and $2" '
      function far(a, b, bound) { return (a > b ? a - b : b - a) > bound * a }
      NR > 1 && ($1 != $4 || far($2, $5, 1e-5) || ($3 != "" && far($3, $6, 1e-6))) {
        print runs " differ: " $0; bad = 1; exit }
      END { exit bad || NR < 2 }'
}

# The default model and data; three ranks cannot share its 16 examples evenly.
for ranks in 1 2 3; do run "default$ranks" --ranks "$ranks" --steps 50; done
for ranks in 2 3; do
  same_curve default1 "default$ranks"
  same_bytes checkpoint/step-00000050.safetensors default1 "default$ranks"
done
[ "$(wc -l <"$work/default3/log.csv")" -eq 51 ]

# The same run twice, with smoothness samples, accumulated gradients and AdamW layers.
measured=("${small[@]}" --deterministic --preset muon --accumulate 2 --steps 20 --smoothness-every 5)
run one --ranks 3 "${measured[@]}"
run two --ranks 3 "${measured[@]}"
run alone --ranks 1 "${measured[@]}"
for other in two alone; do
  same_bytes checkpoint/step-00000020.safetensors one "$other"
  same_bytes smoothness.csv one "$other"
done
[ "$(wc -l <"$work/one/smoothness.csv")" -gt 10 ]

# Layers on spheres, some of which start at zero.
spheres=("${small[@]}" --preset sphere --steps 20)
for ranks in 1 2 3; do run "sphere$ranks" --ranks "$ranks" "${spheres[@]}"; done
for ranks in 2 3; do same_bytes checkpoint/step-00000020.safetensors sphere1 "sphere$ranks"; done

# Attention logits that are clipped: by the largest of all ranks.
clipped=("${small[@]}" --steps 10 --qk-norm 0 --radius hidden=0.144)
for ranks in 1 2 3; do run "clip$ranks" --ranks "$ranks" "${clipped[@]}" --qk-clip 1; done
for ranks in 2 3; do same_bytes checkpoint/step-00000010.safetensors clip1 "clip$ranks"; done
run free --ranks 1 "${clipped[@]}"
if cmp -s "$work/clip1/log.csv" "$work/free/log.csv"; then
  echo "no logit was clipped"
  exit 1
fi

# Started with the variables that torchrun sets.
port=$((20000 + RANDOM % 10000))
for rank in 1 2 0; do
  RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port OMP_NUM_THREADS=1 timeout 300 \
    "$program" train "${small[@]}" --steps 20 --out "$work/hand" >>"$work/hand.txt" 2>&1 &
done
for job in $(jobs -p); do wait "$job" || { tail -n 5 "$work/hand.txt"; exit 1; }; done
run small --ranks 1 "${small[@]}" --steps 20
RANK=0 WORLD_SIZE=1 MASTER_PORT=$port run group "${small[@]}" --steps 20
same_bytes checkpoint/step-00000020.safetensors small group
same_bytes checkpoint/step-00000020.safetensors small hand

# A checkpoint of three ranks resumes with one, two and three ranks, but not with more ranks than parts.
for ranks in 1 2 3; do
  cp -r "$work/hand" "$work/on$ranks"
  run "on$ranks" --resume --ranks "$ranks" --steps 30
done
for ranks in 1 2; do
  same_curve on3 "on$ranks"
  same_bytes checkpoint/step-00000030.safetensors on3 "on$ranks"
done
if "$program" train --resume --ranks 13 --steps 40 --out "$work/on3" >"$work/many.txt" 2>&1; then
  echo "13 ranks shared 12 parts"
  exit 1
fi
grep -q -- "--parts 12 must be 1 or at least the 13 ranks" "$work/many.txt"
# Ranks go back together when gradients hold NaN or Inf.
for ranks in 1 2; do run "nan$ranks" --ranks "$ranks" "${small[@]}" --steps 6 --preset sign_descent --radius all=1e20 --on-nan rollback; done
same_bytes checkpoint/step-00000006.safetensors nan1 nan2
grep -q '"rollbacks": [1-9]' "$work/nan2/facts.json"

# A signal to the program stops all ranks, which save, and is its exit code.
"$program" train --threads 1 --ranks 2 "${small[@]}" --steps 1000000 --out "$work/stopped" >"$work/stopped.txt" 2>&1 &
child=$!
for _ in $(seq 600); do [ "$({ wc -l <"$work/stopped/log.csv"; } 2>/dev/null || echo 0)" -gt 3 ] && break; sleep 0.1; done
kill -TERM $child
status=0
wait $child || status=$?
[ "$status" -eq 143 ] && grep -q "continue with     gluon train --resume" "$work/stopped.txt" ||
  { echo "stopped ranks ended with $status:"; tail -n 5 "$work/stopped.txt"; exit 1; }
echo "1, 2 and 3 ranks: the same bytes"
