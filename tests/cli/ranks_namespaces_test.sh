#!/usr/bin/env bash
# Two ranks in two network namespaces, as on two machines, train as two ranks of one machine do.
set -u
program=$(realpath "$1")
work=$(mktemp -d)
left=gluon-l-$$
right=gluon-r-$$
cleanup() {
  local job
  for job in $(jobs -p); do kill -KILL "$job" 2>/dev/null; done
  ip netns delete "$left" 2>/dev/null
  ip netns delete "$right" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
cd "$work" || exit 1
flags=(--threads 1 --layers 1 --width 32 --heads 2 --seq 32 --batch 6 --steps 10 --eval-every 5)

skip() {
  echo "skipped: $1"
  exit 0
}
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "ip (iproute2) is not installed"

# Connects two new namespaces. Interface names have at most 15 characters.
pair() {
  ip netns add "$left" && ip netns add "$right" &&
    ip -n "$left" link add gluon0 type veth peer name gluon1 netns "$right" &&
    ip -n "$left" addr add 10.201.7.1/24 dev gluon0 && ip -n "$right" addr add 10.201.7.2/24 dev gluon1 &&
    ip -n "$left" link set gluon0 up && ip -n "$right" link set gluon1 up &&
    ip -n "$left" link set lo up && ip -n "$right" link set lo up
}
pair 2>pair.txt || skip "network namespaces are not available: $(head -n 1 pair.txt)"

# start NAMESPACE RANK: run in the background.
start() {
  export RANK=$2 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.201.7.1 MASTER_PORT=29511
  export GLUON_SECRET=the-same-on-both-machines
  exec timeout 60 ip netns exec "$1" "$program" train "${flags[@]}" --rank-timeout 20 --out apart >"$2.txt" 2>&1
}
start "$left" 0 &
first=$!
start "$right" 1 &
second=$!
timeout 60 "$program" train "${flags[@]}" --ranks 2 --out together >together.txt 2>&1
together=$?
if grep -q "this build has no gloo" together.txt; then skip "this build has no Gloo"; fi
status=0
wait $first || status=$?
wait $second || status=$?
if [ "$status" -ne 0 ] || [ "$together" -ne 0 ]; then
  echo "exit codes $status and $together"
  tail -n 5 ./*.txt
  exit 1
fi

cmp {apart,together}/checkpoint/step-00000010.safetensors && echo "two namespaces train as one machine does"
