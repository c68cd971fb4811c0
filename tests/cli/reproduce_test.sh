#!/usr/bin/env bash
# gluon reproduce as people call it: names, missing data, one small experiment from its runs to its figures.
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "$0")/checks.sh"

expect 0 "nanogpt-smoothness" reproduce list
expect 2 "unknown experiment 'nothing'; gluon reproduce list prints their names" reproduce nothing --out r
expect 2 "expected a folder for the results: --out DIR" reproduce norms --small
expect 2 "names is required" reproduce --small --out r
expect 2 "cnn-accuracy needs none/cifar10; --data names its folder" reproduce cnn-accuracy --small --data none --out r
expect 2 "norms needs none/text/wikipedia.txt.xz" reproduce norms --data none --out r
expect 2 "authors-logs needs none/paper-logs/nanogpt-unscion.txt" reproduce authors-logs --data none --out r
expect 2 "--device must be cpu, cuda or cuda:N" reproduce norms --small --data none --device tpu --out r
expect 2 "--device must be cpu, cuda or cuda:N" reproduce authors-logs --data none --device tpu --out r
expect 2 "'data' stands alone, got it beside other names" reproduce data norms --data none --out r
expect 2 "'list' stands alone, got it beside other names" reproduce list list
expect 2 "reproduce: data needs none/text/wikipedia.txt.xz; --data names its folder" reproduce data --data none --out r
expect 0 "nothing to prepare" reproduce data --small --data none --out r
check "nothing is left of what could not run" [ ! -e r/results.csv ]

# What people keep in the places where it writes is not replaced.
mkdir data mine mine/data text
printf 'precious\n' | tee data/train.txt >mine/data/train.txt
head -c 1100000 /dev/zero | tr '\0' 'a' >text/openwebtext-sample.txt
expect 2 "./data, where --out keeps prepared data, is the folder that --data names" reproduce data --small --out .
expect 2 "mine/data/train.txt is there without mine/data/validation.txt; remove it or choose another --out" \
  reproduce data --small --data . --out mine
check "texts of one's own are kept" cmp data/train.txt mine/data/train.txt

# norms: two runs. Stopped in the first one, the same command goes on.
"$program" reproduce norms --small --data none --out r >first.txt 2>&1 &
pid=$!
for _ in $(seq 600); do
  grep -q '^step' first.txt && break
  sleep 0.1
done
kill -TERM $pid
wait $pid
check "a stopped experiment exits as a stopped run" [ $? -eq 143 ]
check "it says how to go on" grep -q "stopped; run the same command again to continue" first.txt
check "it has no result yet" [ ! -e r/norms ]
expect 0 "wrote r/norms/study.md" reproduce norms --small --data none --out r
check "the project's own sources are named" grep -q "Gluon's own sources as bytes" r/norms/study.md
check "it has a verdict" grep -Eq '\| (agrees|differs) \|$' r/norms/study.md
check "both runs ended" [ "$(wc -l <r/results.csv)" -eq 3 ]
check "runs keep no checkpoint" [ ! -e r/runs/unscion-consecutive/checkpoint ]
expect 0 "wrote r/norms/study.md" reproduce norms --small --data none --out r
expect 2 "holds a run with another config; choose another --out" reproduce norms --data none --out r --small --device cuda
all_passed
