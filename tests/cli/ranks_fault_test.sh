#!/usr/bin/env bash
# Ranks that die, hang, do not join or do not match: every other rank names them and ends; --resume continues the run.
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "$0")/checks.sh"
flags=(--threads 1 --layers 1 --width 32 --heads 2 --seq 32 --batch 6 --save-every 10 --eval-every 1000)
port=$((20000 + RANDOM % 10000))

# shellcheck disable=SC2012,SC2046 # file names without spaces
show_output() { tail -n 3 $(ls -t ./*.txt | head -n 3); }

prints() { grep -qF -- "$2" "$1"; }
prints_once() { [ "$(grep -cF -- "$2" "$1")" -eq 1 ]; }

# ends_with CODE TEXT COMMAND...: the command ends with that code and prints the text once.
ends_with() {
  local status=0
  timeout 30 "${@:3}" >printed.txt 2>&1 || status=$?
  [ "$status" -eq "$1" ] && prints_once printed.txt "$2" && return 0
  echo "expected exit code $1 and '$2' once, got $status"
  return 1
}

# launch FILE ARGUMENTS...: run in the background, $! is the launcher; the ranks end with it.
launch() { exec "$program" train "${flags[@]}" "${@:2}" >"$1" 2>&1; }

# start RANK SIZE FILE ARGUMENTS...: one rank without the launcher; run in the background, $! is its process.
start() {
  export RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
  exec "$program" train "${flags[@]}" "${@:4}" >"$3" 2>&1
}

# saved RUN: waits up to 60 s for a checkpoint; fails when no job is running any more.
saved() {
  local running
  for _ in $(seq 600); do
    running=$(jobs -pr)
    compgen -G "$1/checkpoint/step-????????.safetensors" >/dev/null && return 0
    [ -n "$running" ] || return 1
    sleep 0.1
  done
  return 1
}

# ended PROCESS CODE SECONDS: the process ends within that time with that code.
ended() {
  local status=0 why=""
  for _ in $(seq $((10 * $3))); do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null && why=", killed by this test after $3 s"
  wait "$1" 2>/dev/null || status=$?
  [ "$status" -eq "$2" ] && [ -z "$why" ] && return 0
  echo "expected exit code $2, got $status$why"
  return 1
}

# child_of LAUNCHER RANK: prints the process id of the rank.
child_of() {
  local child children
  read -ra children <"/proc/$1/task/$1/children"
  for child in "${children[@]}"; do
    if tr '\0' '\n' <"/proc/$child/environ" | grep -qx "RANK=$2"; then echo "$child"; fi
  done
}

# lose SIGNAL WHO NAME ARGUMENTS...: starts three ranks and sends one of them the signal; the other two name it and end.
lose() {
  local signal=$1 who=$2 name=$3 rank processes=()
  port=$((port + 1))
  for rank in 0 1 2; do
    start $rank 3 "$name.$rank.txt" --steps 1000000 --out "$name" "${@:4}" &
    processes+=($!)
  done
  check "$name: a checkpoint" saved "$name"
  kill "-$signal" "${processes[$who]}"
  for rank in 0 1 2; do
    [ "$rank" -eq "$who" ] && continue
    check "$name: rank $rank ends" ended "${processes[$rank]}" 3 25
    check "$name: rank $rank names it" prints_once "$name.$rank.txt" "gluon: rank $rank: rank $who does not answer"
  done
  kill -KILL "${processes[$who]}" 2>/dev/null
  wait "${processes[$who]}" 2>/dev/null
}

# rejected NAME CODE TEXT SIZE ARGUMENTS...: starts one rank with each of the arguments; all of them end and print the text.
rejected() {
  local name=$1 code=$2 text=$3 size=$4 rank=0 arguments processes=()
  port=$((port + 1))
  for arguments in "${@:5}"; do
    # shellcheck disable=SC2086 # several arguments in one word
    start $rank "$size" "$name.$rank.txt" --steps 4 --out "$name" $arguments &
    processes+=($!)
    rank=$((rank + 1))
  done
  for rank in "${!processes[@]}"; do
    check "$name: rank $rank ends" ended "${processes[$rank]}" "$code" 20
    check "$name: rank $rank prints why" prints_once "$name.$rank.txt" "$text"
  done
}

# The first runs also show whether this build has Gloo.
launch whole.txt --steps 400 --ranks 3 --out whole &
whole=$!
launch run.txt --steps 400 --ranks 3 --out run &
run=$!
saved run
saved=$?
if prints run.txt "this build has no gloo"; then
  echo "skipped: this build has no Gloo"
  exit 0
fi
check "run: a checkpoint" [ $saved -eq 0 ]
kill -KILL "$(child_of $run 1)"
check "run: the launcher ends as the killed rank did" ended $run 137 25
check "run: rank 0 names it" prints_once run.txt "gluon: rank 0: rank 1 does not answer"
check "run: rank 2 names it" prints_once run.txt "gluon: rank 2: rank 1 does not answer"
check "run: its status names it" prints_once run/status.json '"error": "rank 0: rank 1 does not answer'
check "run: the launcher prints why" prints_once run.txt "gluon: rank 1 was ended by signal 9"
check "run: it did not finish" [ ! -e run/checkpoint/step-00000400.safetensors ]
launch resumed.txt --resume --ranks 3 --out run &
resumed=$!

lose KILL 0 first
lose STOP 1 stopped --rank-timeout 10
check "Ctrl-C twice ends the launcher and its ranks" presses_ctrl_c 3 \
  "$program" train "${flags[@]}" --ranks 2 --accumulate 1000000 --out pressed
rejected accumulate 2 "ranks differ in their accumulate" 2 "--accumulate 1" "--accumulate 2"
rejected clip 2 "ranks differ in their clip" 2 "--preset adamw --clip 1" "--preset adamw --clip 0"
rejected absent 3 "rank 0: ranks 1 and 2 did not join at 127.0.0.1:$((port + 1)) within 2 s" 3 "--rank-timeout 2"
check "WORLD_SIZE alone" ends_with 2 "WORLD_SIZE is set, RANK is not" env WORLD_SIZE=2 "$program" train
check "ranks take their own GPUs" ends_with 2 "--device cuda:1 is for one process; each of several ranks" \
  "$program" train --ranks 2 --device cuda:1
check "--ranks differs from WORLD_SIZE" ends_with 2 "--ranks 3 does not fit the environment's WORLD_SIZE 2" \
  env RANK=0 WORLD_SIZE=2 "$program" train --ranks 3
check "printed once" ends_with 2 "no file matches" "$program" train --ranks 3 --data missing
check "printed once for a folder that exists" ends_with 2 "already holds a run" "$program" train --ranks 3 --out first

check "whole: it ends" ended $whole 0 60
check "resumed: it ends" ended $resumed 0 60
check "resumed: same bytes as the uninterrupted run" \
  cmp whole/checkpoint/step-00000400.safetensors run/checkpoint/step-00000400.safetensors
all_passed
