#!/usr/bin/env bash
# gluon theory, fit and tune as people call them: exit codes, messages, JSON.
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "$0")/checks.sh"

two=(--L0 "2,1" --L1 "1,2" --delta0 3)
expect 0 "K = 96 for eps = 0.5" theory --theorem 1 "${two[@]}" --eps 0.5
expect 0 "K = ceil(2 Delta0 sum(L0) / eps^2 + 2 Delta0 max(L1) / eps)" theory --theorem 1 "${two[@]}" --eps 0.5
expect 0 "smooth(1,2)" theory --theorem 1 "${two[@]}" --eps 0.5
expect 0 '"K": 112' theory --theorem 1w "${two[@]}" --eps 0.5 --json
expect 0 "K = 53 " theory --theorem pl "${two[@]}" --mu 0.5 --eps 0.5
expect 0 "K = 8 " theory --theorem pl0 --L0 2,1 --L1 0,0 --delta0 3 --mu 0.5 --eps 0.5
expect 0 '"K": 432' theory --theorem 2 "${two[@]}" --zeta 0.5 --eps 0.5 --json
expect 0 "K = 480 " theory --theorem 2w "${two[@]}" --zeta 0.5 --eps 0.5
expect 0 "eps = 33.25 after K = 1" theory --theorem 3 --L0 2 --L1 0 --t 0.5 --delta0 1 --sigma 3 --steps 1
expect 0 "c_i = 1 holds for Euclidean norms" theory --theorem 3 "${two[@]}" --sigma 1 --eps 1
expect 0 "216" theory --theorem 1 --L0 2,1 --L1 0,0 --delta0 3 --eps 0.5
expect 0 "result                    stochastic  (L0, L1)  rate      radius            1 - beta          K" theory --theorem 1 "${two[@]}" --eps 0.5
expect 0 "NEW: theorem 1            no          yes       K^(-1/2)  adaptive          -                 96" theory --theorem 1 "${two[@]}" --eps 0.5
expect 0 "NEW: theorem 3            yes         yes       K^(-1/4)  ~ k^(-3/4)        ~ k^(-1/2)        does not apply: needs bounded variance" theory --theorem 2 "${two[@]}" --zeta 0.5 --eps 0.5
expect 0 "Li 2025, theorem 2.1      yes         no        K^(-1/4)  const ~ K^(-3/4)  const ~ K^(-1/2)  does not apply: needs L1 = 0" theory --theorem 1 "${two[@]}" --eps 0.5
expect 0 '"result": "NEW: theorem 3"' theory --theorem 3 "${two[@]}" --sigma 1 --eps 0.5 --json
expect 0 '"L0_L1": true' theory --theorem 3 "${two[@]}" --sigma 1 --eps 0.5 --json
expect 0 '"table1": []' theory --theorem pl "${two[@]}" --mu 0.5 --eps 0.5 --json
expect 0 "does not apply: needs L1 = 0 in every layer" theory --theorem 1 "${two[@]}" --eps 0.5
expect 0 '"obstacle": "needs L1 = 0 in every layer"' theory --theorem 1 "${two[@]}" --eps 0.5 --json
expect 0 '"obstacle": null' theory --theorem 1 --L0 2 --L1 0 --delta0 3 --eps 0.5 --json
expect 2 "unknown theorem '4'; allowed are 1, 1w, pl, pl0, 2, 2w, 3" theory --theorem 4 "${two[@]}" --eps 0.5
expect 2 "--theorem" theory "${two[@]}" --eps 0.5
expect 2 "expected --L0 and --L1 (one number per layer: a,b,...) or --run" theory --theorem 1 --eps 0.5
expect 2 "--L0 and --L1 must have the same length, got 2 and 1" theory --theorem 1 --L0 1,2 --L1 1 --delta0 1 --eps 1
expect 2 "theory: --L1: expected a number, got 'x'" theory --theorem 1 --L0 1 --L1 x --delta0 1 --eps 1
expect 2 "theory: theorem 1 needs --delta0" theory --theorem 1 --L0 1 --L1 1 --eps 1
expect 2 "theory: expected --eps, --steps or both" theory --theorem 1 "${two[@]}"
for steps in 0 1.5 -3 1000000000000001 99999999999999999999; do
  expect 2 "theory: --steps must be a whole number from 1 to 1e15, got $steps" theory --theorem 1 "${two[@]}" --steps "$steps"
done
expect 0 "after K = 1000000000000000" theory --theorem 1 "${two[@]}" --steps 1000000000000000
expect 2 "theory: --steps: expected a number, got 'many'" theory --theorem 1 "${two[@]}" --steps many
expect 2 "theorem 1, weighted: the bound after 5 iterations overflows double" theory --theorem 1w --L0 1 --L1 1e-320 --delta0 1 --steps 5
expect 2 "theory: theorem pl needs --mu" theory --theorem pl "${two[@]}" --eps 1
expect 2 "theory: theorem 2 needs --zeta" theory --theorem 2 "${two[@]}" --eps 1
expect 2 "theory: theorem 3 needs --sigma" theory --theorem 3 "${two[@]}" --eps 1
expect 2 "--t must have 1 number or one per layer (2), got 3" theory --theorem 3 "${two[@]}" --t 1,2,3 --sigma 1 --eps 1
expect 2 "--t and --noise-factor apply to theorem 3 only, got theorem 1" theory --theorem 1 "${two[@]}" --t 1 --eps 1
expect 2 "--sigma applies to theorem 3 only, got theorem 2" theory --theorem 2 "${two[@]}" --zeta 0.5 --sigma 3 --eps 1
expect 2 "--zeta applies to theorems 2 and 2w only, got theorem 3" theory --theorem 3 "${two[@]}" --sigma 3 --zeta 0.5 --eps 1
expect 2 "--mu applies to theorems pl and pl0 only, got theorem 1" theory --theorem 1 "${two[@]}" --mu 5 --eps 1
mkdir "$work/measured"
printf 'step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,alignment,radius\n' >"$work/measured/smoothness.csv"
for sample in 5,1 8,2 14,4; do # Lhat = 2 + 3 |g|*
  printf '1,w,hidden,spectral,exact,same_batch,,,%s,,,\n' "$sample" >>"$work/measured/smoothness.csv"
done
expect 2 "holds no run (no config.toml)" theory --theorem 1 --run "$work/measured" --eps 1
: >"$work/measured/config.toml"
expect 2 "has no log to take Delta0 from; give --delta0" theory --theorem 1 --run "$work/measured" --eps 1
printf 'step,tokens,loss,val,seconds\n1,8,5,,1\n2,16,4,4.1,2\n3,24,4.5,,3\n4,3' >>"$work/measured/log.csv"
expect 0 "K = 10 for eps = 1" theory --theorem 1 --run "$work/measured" --eps 1
expect 0 "Delta0 is a lower estimate" theory --theorem 1 --run "$work/measured" --eps 1
expect 0 "K = 20 for eps = 1" theory --theorem 1 --run "$work/measured" --delta0 2 --eps 1
expect 2 "t must be at most 1 / (12 L1) = 0.0277778, got 1 for layer 'w'" theory --theorem 3 --run "$work/measured" --sigma 1 --t 1 --eps 1
printf 'step,tokens\n1,2\n' >"$work/measured/log.csv"
expect 2 "log.csv has no column loss, val, seconds" theory --theorem 1 --run "$work/measured" --eps 1
expect 2 "expected either --run or --L0 and --L1, got both" theory --theorem 1 "${two[@]}" --run "$work/run" --eps 1

# Fits of measured smoothness: Lhat = 3 + 2 |g|*, and layers that cannot be fitted.
{
  echo "step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,alignment,radius"
  for g in 1 2 4; do echo "$g,first,hidden,\"scaled(2,spectral)\",exact,same_batch,,1,$((3 + 2 * g)),$g,,,0.1"; done
  echo "1,still,hidden,spectral,exact,same_batch,1,1,1,0,0,,0.1"
  echo "2,still,hidden,spectral,exact,same_batch,1,1,1,0,0,,0.1"
  echo "1,lone,hidden,spectral,exact,same_batch,1,1,1,1,0,,0.1"
} >"$work/smoothness.csv"
expect 0 "estimator: same_batch" fit "$work/smoothness.csv"
expect 0 "first  hidden          3            3            2" fit "$work" --lambda 0
expect 0 '"layer": "first"' fit "$work/smoothness.csv" --json
expect 0 '"L0": 0.0' fit "$work/smoothness.csv" --json --l0-zero
expect 0 '"samples": 2' fit "$work/smoothness.csv" --json --skip-first 1
expect 0 "not fitted: layer 'still': all 2 gradients are zero" fit "$work/smoothness.csv"
expect 0 "not fitted: layer 'lone': needs at least 2 samples, got 1" fit "$work/smoothness.csv"
expect 2 "none of the 3 layers" fit "$work/smoothness.csv" --skip-first 5
for bad in '' -1 010 1.5 many 99999999999999999999; do
  expect 2 "--skip-first: expected auto or a whole number of samples, got '$bad'" fit "$work/smoothness.csv" --skip-first "$bad"
done

# A first sample far above the line of the others is left out; one in the middle makes the fit doubtful, and tune refuses.
spiked() { # spiked STEP: a run of ten samples with Lhat = 3 |g|*, times 1000 at STEP
  rm -rf "$work/spiked"
  mkdir "$work/spiked"
  printf 'steps=10\n' >"$work/spiked/config.toml"
  head -1 "$work/smoothness.csv" >"$work/spiked/smoothness.csv"
  for k in $(seq 10); do
    echo "$k,w,hidden,spectral,exact,same_batch,,1,$((3 * (10 + k % 4) * (k == $1 ? 1000 : 1))),$((10 + k % 4)),,,0.1"
  done >>"$work/spiked/smoothness.csv"
}
spiked 1
expect 0 "left out: 1 sample at the start of 1 layer, more than 3 times above the line of the others" fit "$work/spiked"
expect 0 "doubtful: layer 'w': 90 % of the samples are below half of the line" fit "$work/spiked" --skip-first 0
expect 0 '"doubt": "90 % of the samples are below half of the line"' fit "$work/spiked" --skip-first 0 --json
expect 0 "radius = hidden=0.3333" tune "$work/spiked" --skip-first auto
spiked 5
expect 0 "doubtful: 90 % of the samples" report "$work/spiked" --text
expect 2 "tune: no radius for group 'hidden': none of its 1 fits can be trusted: in layer 'w' 90 %" tune "$work/spiked"
check "a refused tune wrote a config" [ ! -e "$work/spiked/tuned.toml" ]
expect 0 "radius = hidden=0.3333" tune "$work/spiked" --skip-first 5
printf 'step:1 (0) L_estimated: 5 norm_grad: 1\nstep:2 (0) L_estimated: 9 norm_grad: 3\n' >"$work/paper.txt"
expect 0 "estimator: unknown" fit "$work/paper.txt"
# Mini-batch logs of the authors count steps in epochs: Lhat = 3 + 2 |g|*.
for g in 1 2 4; do echo "step:0.0$((2 * g)) (0) L_estimated: $((3 + 2 * g)) norm_grad: $g"; done >"$work/epochs.txt"
expect 0 "0                     3            3            2" fit "$work/epochs.txt" --lambda 0
expect 0 "0                3          2" report "$work/epochs.txt" --text

# put_on_line RUN: its samples become Lhat = 2 + 3 |g|*; what a machine measures may have L1 = 0, which theorems refuse.
put_on_line() {
  awk -F, -v OFS=, 'NR > 1 { $(NF - 4) = 2 + 3 * NR; $(NF - 3) = NR } 1' "$1/smoothness.csv" >"$work/line.csv"
  mv "$work/line.csv" "$1/smoothness.csv"
}

# What gluon theory says of a run goes into the next: each theorem's radii for every layer, as they are printed.
run=(--model nanogpt-tiny --layers 1 --width 16 --heads 2 --seq 16 --batch 2 --threads 1)
expect 0 "finished" train "${run[@]}" --steps 12 --smoothness-every 1 --schedule constant --out "$work/first"
put_on_line "$work/first"
for theorem in "1" "1w" "pl --mu 1" "2 --zeta 0.5" "2w --zeta 0.5" "3 --sigma 1"; do
  # shellcheck disable=SC2086 # a theorem and its flags
  flags=$("$program" theory --run "$work/first" --eps 1 --theorem $theorem | sed -n "s/^gluon train //p" | tr -d "'")
  check "theorem $theorem: no flags" [ -n "$flags" ]
  rm -rf "$work/next"
  # shellcheck disable=SC2086 # flags without blanks
  expect 0 "finished" train "${run[@]}" --steps 2 $flags --out "$work/next"
done
expect 0 "power(0.02)" train "${run[@]}" --steps 2 --radius 'hidden=power(0.02)' --out "$work/power"
expect 2 "AdamW needs a constant learning rate for layer" train "${run[@]}" --preset muon --radius 'all=power(0.02)' --out "$work/bad"
check "a refused run left its folder" [ ! -e "$work/bad" ]

# Constants of each layer for deterministic_gluon, measured and used.
yes 'some words of text to train on, once more' | head -c 600 >"$work/text.txt"
full=("${run[@]}" --full-batch --preset deterministic_gluon)
expect 0 "finished" train "${full[@]}" --steps 8 --smoothness-every 1 --data "$work/text.txt" --out "$work/full"
put_on_line "$work/full"
expect 0 "=smooth(2," tune "$work/full" --skip-first 0 --out "$work/full.toml"
expect 0 "smooth(" train --config "$work/full.toml" --steps 2 --out "$work/tuned"

all_passed
