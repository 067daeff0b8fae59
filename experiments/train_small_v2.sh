#!/usr/bin/env bash
# hplus-small v2, from data to checkpoint:   experiments/train_small_v2.sh ../shared/data WORK
# Everything is seeded and goes on where it was stopped; one core, of its own: an hour of mining and stored states, then the run.
set -euo pipefail
DATA=$(realpath "$1")
WORK=$2
HERE=$(dirname "$(realpath "$0")")
mkdir -p "$WORK"
[ -d "$WORK/citance-dev" ] || python "$HERE/make_pairs.py" "$DATA/pairs" "$WORK"
cd "$WORK"
ln -sfn "$DATA" data  # where the configurations look for their dev sets
APART=$(for folder in "$DATA"/eval/*/; do echo "--apart-from $folder"; done)

# 1. Negatives spread over the scores of hplus-small's own tokens; they and its global view teach.
[ -f groups.jsonl.gz ] || hplus teach negatives pairs/*.jsonl.gz --from bm25 --from global:small \
  --teacher tokens:small --count 15 $APART --cache states --out groups.jsonl.gz
[ -f scored.jsonl.gz ] || hplus teach scores groups.jsonl.gz --teacher tokens:small \
  --teacher '0.5*global:small' --cache states --out scored.jsonl.gz

# 2. The lexical head reads layer 3: a copy of four layers trains it at a third of the cost.
[ -f fewer.jsonl.gz ] || python "$HERE/fewer_documents.py" scored.jsonl.gz 6000 fewer.jsonl.gz
[ -d four ] || python "$HERE/fewer_layers.py" small 1,2,3,4 four
hplus train stage2 "$HERE/small-heads.toml" --set student.start=four --threads 1 --cache lower --out small-heads

# 3. Units, importance and global view together.
hplus train stage2 "$HERE/small-v2.toml" --threads 1 --cache lower --out small-v2
