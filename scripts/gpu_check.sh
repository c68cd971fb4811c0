#!/usr/bin/env bash
# Builds, tests, sanitizes and benchmarks on a machine with a Hopper GPU.
#
#   scripts/gpu_check.sh [build|test|portable|sanitize|bench|ranks|peers|python]...   all of them without an argument
#
# Installs nothing: LibTorch comes from the Python package torch, see docs/install.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export GLUON_SKIP_SETUP=1
gluon=build/gluon

build() {
  if [ -f build/preset ] && [ "$(cat build/preset)" != cuda ]; then
    echo "gpu_check: build/ is for $(cat build/preset); remove it first" >&2
    return 1
  fi
  mkdir -p build && echo cuda > build/preset  # as make does
  cmake --preset cuda --log-level=ERROR -Wno-dev > /dev/null
  ninja -C build gluon_program optimizer_check model_check orthogonalize_check two_streams_check \
    update_tests lmo_tests orthogonalize_tests smoothness_tests model_tests train_tests > build/gpu.log ||
    { tail -n 40 build/gpu.log; return 1; }
  tail -n 1 build/gpu.log
  if grep C7511 build/gpu.log; then  # ptxas: products wait for each other, a tenth of the speed is gone
    echo "gpu_check: the compiler serialized the warpgroup products" >&2
    return 1
  fi
}

# Only the tests that use the GPU; the others run without one, too.
test() {
  for check in optimizer_check model_check orthogonalize_check two_streams_check; do
    build/tests/$check | grep -i failed
  done
  for tests in update lmo orthogonalize smoothness model train; do
    "build/tests/${tests}_tests" --gtest_brief=1 --gtest_filter='*Cuda*:*Gpu*:*GPU*:*Fused*:*Devices*'
  done
}

# The path of GPUs other than Hopper's, forced.
portable() {
  export GLUON_PORTABLE_KERNELS=1
  build/tests/update_tests --gtest_brief=1 --gtest_filter='*Cuda*:*Gpu*:*GPU*:*Fused*:*Devices*:DeviceLmo*:StepPath*'
  for model in gpt124m gpt1b3; do $gluon bench step --model $model --device cuda --repeats 20; done
  unset GLUON_PORTABLE_KERNELS
}

# Only our kernels: racecheck would spend minutes in cuBLAS, which computes the references. two_streams_check is left
# out: it is about launches at full speed.
sanitize() {
  for tool in memcheck racecheck synccheck; do
    for check in "orthogonalize_check small" optimizer_check model_check; do
      # shellcheck disable=SC2086
      compute-sanitizer --tool $tool --kernel-name kns=5gluon --error-exitcode 1 build/tests/$check | tail -n 1
    done
  done
}

bench() {
  for model in gpt124m gpt1b3 embedding; do $gluon bench step --model $model --device cuda --repeats 20; done
  $gluon bench step --model gpt124m --device cuda --repeats 20 --normalize 'normuon(0.95)' --decay 'cautious(0.01)'
  $gluon bench step --model gpt124m --device cuda --repeats 20 --sphere auto
  local training=(--model nanogpt-124m --device cuda --batch 32 --seq 1024)
  $gluon bench train "${training[@]}" --repeats 10
  for mode in consecutive same_batch; do
    $gluon bench smoothness "${training[@]}" --smoothness-every 50 --smoothness-mode $mode
  done
}

# One rank over NCCL trains as without it, by its losses and samples: with the CUDA graph, without it (buckets leave
# during the backward pass), and started by torchrun.
ranks() {
  local folder flags=(train --device cuda --steps 60 --eval-every 20 --smoothness-every 20)
  folder=$(mktemp -d)
  one_rank() { RANK=0 WORLD_SIZE=1 MASTER_PORT=29577 "$@"; }
  launch() { torchrun --standalone --no_python --nproc_per_node 1 "$@"; }
  same_training() {  # NAME STARTER FLAGS...
    local name=$1 starter=$2
    shift 2
    $gluon "${flags[@]}" "$@" --out "$folder/$name-alone" > "$folder/alone.txt"
    $starter $gluon "${flags[@]}" "$@" --out "$folder/$name" > "$folder/nccl.txt"
    diff <(cut -d, -f1,3,4 "$folder/$name-alone/log.csv") <(cut -d, -f1,3,4 "$folder/$name/log.csv")
    cmp "$folder/$name-alone/smoothness.csv" "$folder/$name/smoothness.csv"
    echo "one rank over NCCL, $name: the same losses and samples"
  }
  same_training graph one_rank
  same_training plain one_rank --cuda-graph 0
  same_training torchrun launch
  rm -r "$folder"
}

peers() { python3 benchmarks/gpu_peers.py; }

# The package with the kernels, for the interpreter that has torch: tests, and the step beside torch.optim.Muon's.
python() {
  python3 -c 'import pytest' 2> /dev/null || { echo "gpu_check: python3 has no pytest" >&2; return 1; }
  cmake --preset cuda --log-level=ERROR -Wno-dev -DGLUON_PYTHON=ON \
    -DPython_EXECUTABLE="$(command -v python3)" > /dev/null
  ninja -C build gluon_python gluon_python_parity > build/python.log || { tail -n 40 build/python.log; return 1; }
  local failed=0
  export PYTHONPATH=$PWD/build/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
  export GLUON_PARITY_PROGRAM=$PWD/build/python/gluon_python_parity
  python3 -m pytest -q -rs -p no:cacheprovider python/tests || failed=1
  python3 benchmarks/python_step.py --at-least 10 || failed=1
  return $failed
}

for part in "${@:-build test portable sanitize bench ranks peers python}"; do
  for one in $part; do
    echo "== $one"
    $one
  done
done
