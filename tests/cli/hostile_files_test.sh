#!/usr/bin/env bash
# Files that are hostile, damaged, or change while the program reads them: one sentence, the right exit code, and
# nothing for the terminal to obey.
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "$0")/checks.sh"

show_output() { printf '  exit %s and:\n%s\n' "$status" "$output"; }
run() {
  output=$("$program" "$@" 2>&1)
  status=$?
}
says() { [[ "$output" == *"$1"* ]]; }
is_plain() { ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' <<<"$output"; }
is_one_line() { [ "$(wc -l <<<"$output")" -eq 1 ]; }

# refused TEXT ARGUMENTS...: exit 2 and one line with the text, which a terminal shows as it is.
refused() {
  local text=$1
  shift
  run "$@"
  check "$*" [ "$status" -eq 2 ]
  check "$*" says "$text"
  check "$*" is_one_line
  check "$*" is_plain
}

# Names from files.
evil=$'\033]0;title\a\033[2Jlayer\xff'
columns="step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,alignment,radius"
{
  echo "$columns"
  for g in 1 2 4; do echo "$g,$evil,hid${evil}den,spectral,exact,same_batch,,1,$((3 + 2 * g)),$g,,,0.1"; done
  echo "1,still$evil,hidden,spectral,exact,same_batch,1,1,1,0,0,,0.1"
} >smoothness.csv
for arguments in "fit smoothness.csv" "fit smoothness.csv --json" "report smoothness.csv"; do
  # shellcheck disable=SC2086
  run $arguments
  check "$arguments" [ "$status" -eq 0 ]
  check "$arguments" says "layer"
  check "$arguments" is_plain
done
run report smoothness.csv --figures figures --out page.html
check "figures and the page" [ "$status" -eq 0 ]
echo "5,$evil,other,spectral,exact,same_batch,,1,1,1,,,0.1" >>smoothness.csv
refused "changes its group from" fit smoothness.csv

# A range of a few ulps.
printf '%s\n' "$columns" 1,a,g,spectral,exact,full,1,1,1,1,,, 2,a,g,spectral,exact,full,1,1,1,2,,, \
  3,a,g,spectral,exact,full,1,1,1.0000000000000002,3,,, >ulps.csv
run report ulps.csv --figures ulps
check "a range of a few ulps" [ "$status" -eq 0 ]

# Depth, endless files, a file that unpacks to more than there is memory.
mkdir run vocab
printf 'steps=2\n' >run/config.toml
printf 'step,tokens,loss,val,seconds\n1,8,5,,1\n2,16,4,4.1,2\n' >run/log.csv
head -c 3000000 /dev/zero | tr '\0' '[' >run/facts.json
run report run --out run/page.html
check "nested facts.json" [ "$status" -eq 0 ]
for target in /dev/zero "$PWD/run/facts.json"; do
  ln -sf "$target" run/status.json
  run report run --text
  check "hostile status.json" [ "$status" -eq 0 ]
  check "hostile status.json" says "status.json is damaged"
done
{
  printf '{"a":'
  cat run/facts.json
} >vocab/encoder.json
: >vocab/vocab.bpe
refused "encoder.json is nested deeper than 32 levels" data tokenize --vocab vocab --out shards run/log.csv
refused "cannot read /dev/zero: it is not a regular file" fit /dev/zero
refused "/dev/zero is neither a folder nor a regular file" report /dev/zero

# A pipe in the place of a run's file, which nothing ever writes to.
gluon=$program
impatient() { timeout 60 "$gluon" "$@"; }
for file in log.csv smoothness.csv; do
  mkdir piped && cp run/config.toml run/log.csv piped/
  rm -f "piped/$file" && mkfifo "piped/$file"
  program=impatient refused "cannot read piped/$file: it is not a regular file" report piped --text
  rm -r piped
done

if command -v xz >/dev/null; then
  echo "some text that is long enough to be trained on" | xz >good.xz
  { cat good.xz && echo "no xz"; } >junk.xz
  refused "junk.xz' has 6 bytes after its xz data that are not xz" train --data junk.xz --out none
  # More than half of the memory in zeros, as streams of 256 MiB, which take 40 KB each.
  head -c 268435456 /dev/zero | xz -0 -T1 >zeros.xz
  for _ in $(seq $(($(awk '/MemTotal/ {print int($2 / 524288)}' /proc/meminfo) + 4))); do cat zeros.xz; done >bomb.xz
  refused " bytes, at most " train --data bomb.xz --out none
fi
check "no run is left" [ ! -e none ]

# A shard that is cut, or replaced, while a run reads it.
train=(train --threads 1 --layers 1 --width 32 --heads 2 --seq 32 --batch 4 --eval-every 20 --save-every 10)
shard() { { printf '\x88\xd8\x34\x01\x01\x00\x00\x00\x40\x9c\x00\x00' && head -c $((1012 + 2 * 40000)) /dev/zero; } >"$1"; }
# while_training RUN COMMAND...: runs the command once RUN has a checkpoint; `status` and `output` are the run's.
while_training() {
  local out=$1
  shift
  "$program" "${train[@]}" --data shard.bin --steps 100000 --out "$out" >"$out.txt" 2>&1 &
  local pid=$!
  while [ ! -e "$out/checkpoint/latest" ] && kill -0 $pid 2>/dev/null; do sleep 0.1; done
  "$@"
}
shard shard.bin
while_training cut truncate -s 3000 shard.bin
wait $!
status=$?
output=$(grep '^gluon: ' cut.txt)
check "a shard that is cut" [ "$status" -eq 2 ]
check "a shard that is cut" says "file 'shard.bin' was cut from 81024 to 3000 bytes while it was read"
shard shard.bin
saved=$(sed 's/step-0*\([0-9]*\).*/\1/' cut/checkpoint/latest)
run "${train[@]}" --resume --out cut --data shard.bin --steps $((saved + 5))
check "goes on after the cut" [ "$status" -eq 0 ]
check "goes on after the cut" says "finished after"

while_training replaced mv good.xz shard.bin
before=$(wc -l <replaced/log.csv)
while [ "$(wc -l <replaced/log.csv)" -le $((before + 40)) ] && kill -0 $! 2>/dev/null; do sleep 0.1; done
check "a shard that is replaced" kill -INT $!
wait $!

all_passed
