#!/usr/bin/env bash
# gluon tune --probe as people call it: what it says before it starts, its answer, stops, refusals.
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "$0")/checks.sh"

yes 'some words of text to train on, once more' | head -c 4000 >"$work/text.txt"
shape=(--layers 1 --width 16 --heads 1 --seq 8 --batch 1 --data "$work/text.txt" --threads 1)
run=(tune --probe "${shape[@]}" --steps 400 --budget 80%)

# Before any run exists; the cost is the first line.
expect 0 "tune: up to 5 probes of 64 steps, at most 320 of the run's 400 steps (80 %)" "${run[@]}" --out "$work/probes"
"$program" "${run[@]}" --out "$work/probes" >"$work/probes.log"
check "the cost is said first" grep -q "^tune: up to 5 probes" <(head -1 "$work/probes.log")
check "it says who wrote it" [ "$(head -n 1 "$work/probes/tuned.toml")" = "# by gluon tune" ]
check "a config to train with" grep -q '^radius="factor=' "$work/probes/tuned.toml"
check "it keeps the run's steps" grep -q '^steps=400$' "$work/probes/tuned.toml"
check "it names no folder" [ "$(grep -c "$work/probes" "$work/probes/tuned.toml")" -eq 0 ]
check "a probe has its own steps" grep -q '^steps=64$' "$work/probes/factor=1/config.toml"
check "a probe falls to 0 over its own steps" grep -q '^64,.*,0.00133217' "$work/probes/factor=1/log.csv" # law / 64
check "a row for each" [ "$(wc -l <"$work/probes/sweep.csv")" -eq 6 ]
expect 0 "next run: gluon train --config $work/probes/tuned.toml" "${run[@]}" --out "$work/probes"
expect 0 " K^-0.4 with K = 400" "${run[@]}" --out "$work/probes"
expect 0 "probe 5: factor=" "${run[@]}" --out "$work/probes"
expect 0 "factor=1  is already finished" "${run[@]}" --out "$work/probes"
expect 0 "best" report "$work/probes" --text
expect 0 " K^-0.4 with K = 5" train --config "$work/probes/tuned.toml" --steps 5 --out "$work/next"

# JSON alone on the standard output.
"$program" "${run[@]}" --out "$work/probes" --json >"$work/probes.json" 2>"$work/errors"
check "the JSON" python3 - "$work/probes.json" <<'PYTHON'
import json, sys
answer = json.load(open(sys.argv[1]))
assert (answer["steps"], answer["probe_steps"], answer["most_probes"]) == (400, 64, 5), answer
assert [probe["factor"] for probe in answer["probes"]][:2] == [1, 8], answer
assert answer["doubt"] == "" or answer["doubt"].startswith("the budget ended first"), answer
assert answer["radius"] == "factor=%g" % answer["factor"], answer
PYTHON
check "the cost is said beside it" grep -q "^tune: up to 5 probes" "$work/errors"

# From a config file, from another factor, with other radii.
printf 'steps=400\nradius="factor=2,embedding=0.5"\nsmoothness-every=10\n' >"$work/run.toml"
expect 0 "probe 1: factor=2,embedding=0.5" \
  tune --probe --config "$work/run.toml" "${shape[@]}" --budget 80% --out "$work/other"
check "the samples are the run's own" grep -q '^smoothness-every=10$' "$work/other/tuned.toml"
check "probes take none" [ ! -e "$work/other/factor=2,embedding=0.5/smoothness.csv" ]
expect 0 "probe 1: factor=0.25" tune --probe --config "$work/run.toml" "${shape[@]}" --budget 80% \
  --radius factor=0.25 --out "$work/other2"
expect 0 "probe 1: factor=1" "${run[@]}" --radius auto --out "$work/probes"

# Probes that all end alike.
expect 0 "not settled: the probes do not tell these factors apart; begin elsewhere with --radius factor=..." \
  "${run[@]}" --radius factor=1e-20 --out "$work/flat"

# A budget that holds no probes is said, and what to do.
expect 0 "tune: no probes: the fewest that say something are 5 of 64 steps, 320 in all, and 10 % of the run's 400 steps are 40; --budget 80% would hold them" \
  tune --probe "${shape[@]}" --steps 400 --out "$work/none"
expect 0 "radius = factor=1 (preset sphere): 0.0409627 = 0.45 K^-0.4 with K = 400" \
  tune --probe "${shape[@]}" --steps 400 --out "$work/none"
check "the law stays as it is" grep -q '^radius="factor=1"$' "$work/none/tuned.toml"
expect 0 '"probes": []' tune --probe "${shape[@]}" --steps 400 --out "$work/none" --json
cp "$work/probes/tuned.toml" "$work/found.toml"
expect 2 "tuned.toml holds another result, which one of no probes must not replace; give a larger --budget or choose another --out" \
  tune --probe "${shape[@]}" --steps 400 --out "$work/probes"
check "a result of probes was lost" cmp "$work/found.toml" "$work/probes/tuned.toml"
# Without probes, too, only what gluon train would take.
few=(tune --probe "${shape[@]}" --steps 100 --out "$work/few")
expect 2 "--radius factor=1 has no effect: nanogpt-tiny has no layers that preset sphere moves by it" "${few[@]}" --radius hidden=0.1
expect 2 "--radius vector=0.1 has no effect: nanogpt-tiny has no layers" "${few[@]}" --radius vector=0.1
expect 2 "no file matches" tune --probe --data "$work/nosuch" --steps 100 --out "$work/few"
check "a refused probe left a folder" [ ! -e "$work/few" ]
mkdir "$work/kept"
echo 'steps=4 # mine' >"$work/kept/tuned.toml"
expect 2 "tuned.toml exists and is not a config that gluon tune wrote" "${run[@]}" --out "$work/kept"
check "a foreign config was replaced" grep -qx 'steps=4 # mine' "$work/kept/tuned.toml"
check "a refused probe trained" [ "$(ls "$work/kept")" = tuned.toml ]
for bad in 0% 200% abc -5% 10 nan%; do
  expect 2 "--budget: expected a share of the run's steps above 0% and at most 100%, such as 10%, got '$bad'" \
    tune --probe "${shape[@]}" --budget="$bad" --out "$work/bad"
done

# Probes that all diverge.
expect 2 "tune: all 5 probes diverged, from factor 1 to 0.000244141; begin lower with --radius factor=..." \
  "${run[@]}" --radius embedding=1e30 --out "$work/diverged"
check "no answer is written" [ ! -e "$work/diverged/tuned.toml" ]

# Stopped between steps; the same command goes on to the same answer.
stopped=(tune --probe "${shape[@]}" --steps 400000 --budget 80% --out "$work/stopped")
"$program" "${stopped[@]}" >"$work/stopped.log" 2>&1 &
for _ in $(seq 100); do grep -q "^probe 1:" "$work/stopped.log" && break; sleep 0.1; done
sleep 0.5
kill -INT $!
wait $!
check "the exit code of Ctrl-C" [ $? -eq 130 ]
check "it says how to go on" grep -q "stopped after 0 probes; run the same command again to continue" "$work/stopped.log"
check "no answer yet" [ ! -e "$work/stopped/tuned.toml" ]
check "what was trained is kept" [ -e "$work/stopped/factor=1/checkpoint/latest" ]
cp -r "$work/probes" "$work/again"
rm -r "$work/again/factor=$(tail -1 "$work/again/sweep.csv" | cut -d, -f1)" "$work/again/tuned.toml"
sed -i '$d' "$work/again/sweep.csv"
expect 0 "radius = " "${run[@]}" --out "$work/again"
check "the same answer" cmp "$work/probes/tuned.toml" "$work/again/tuned.toml"
check "the same losses" cmp <(cut -d, -f1-3 "$work/probes/sweep.csv") <(cut -d, -f1-3 "$work/again/sweep.csv")

printf 'preset="unscion"\n' >"$work/plain.toml"

# Refusals, before the first step.
expect 2 "tune: expected a run directory, or --probe and the flags of gluon train" tune
expect 2 "--steps requires --probe" tune "$work/next" --steps 4
expect 2 "--budget requires --probe" tune "$work/next" --budget 10%
expect 2 "tune: --probe takes no run directory, got $work/next" tune "$work/next" --probe --out "$work/bad"
expect 2 "not expected: --stepz" tune --probe --stepz 3200 "${shape[@]}" --out "$work/bad" # and not its value
expect 2 "not expected: --sample" tune --probe --sample 5 "${shape[@]}" --out "$work/bad"
expect 2 "--lambda excludes --probe" tune --probe --lambda 0 --out "$work/bad"
expect 2 "tune: --probe needs the folder of its probes: --out DIR" tune --probe
expect 2 "finds the factor of preset sphere, got preset muon; add --preset sphere --radius auto" "${run[@]}" --preset muon --out "$work/bad"
expect 2 "finds the factor of preset sphere, got preset unscion" tune --probe --config "$work/plain.toml" --out "$work/bad"
expect 2 "tune: --probe needs the schedule that belongs to the law, an empty one, got constant" "${run[@]}" --schedule constant --out "$work/bad"
expect 2 "tune: --probe takes numbers in --radius, such as factor=2, got head=power(1)" "${run[@]}" --radius 'head=power(1)' --out "$work/bad"
expect 2 "no effect: nanogpt-tiny has no layers that preset sphere moves by it" "${run[@]}" --radius hidden=0.1 --out "$work/bad"
expect 2 "--clip has no effect on preset sphere" "${run[@]}" --clip 2 --out "$work/bad"
expect 2 "holds a run; choose another --out for its probes" "${run[@]}" --out "$work/next"
expect 2 "factor=1 holds a run with another config; choose another --out" "${run[@]}" --seed 1 --out "$work/probes"
check "refusals leave nothing" [ ! -e "$work/bad" ]

all_passed
