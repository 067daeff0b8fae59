#!/usr/bin/env bash
# hplus-small v2, from data to checkpoint:   experiments/train_small_v2.sh ../shared/data SMALL-V1 WORK
# SMALL-V1: a folder with hplus-small v1 (experiments/train_small.sh makes it).
# Everything is seeded and goes on where it was stopped; both cores: half an hour of groups and stored states, then another.
set -euo pipefail
DATA=$(realpath "$1")
FIRST=$(realpath "$2")
WORK=$3
HERE=$(dirname "$(realpath "$0")")
mkdir -p "$WORK"
[ -d "$WORK/citance-dev" ] || python "$HERE/make_pairs.py" "$DATA/pairs" "$WORK"
cd "$WORK"
ln -sfn "$DATA" data        # where the configurations look for their dev sets …
ln -sfn "$FIRST" small-v1   # … and for their start
APART=$(for folder in "$DATA"/eval/*/; do echo "--apart-from $folder"; done)

# 1. Groups of the documents nearest to each query, scored by v1's own tokens.
[ -f scored.jsonl.gz ] || python "$HERE/near_groups.py" pairs small-v1 scored.jsonl.gz --cache states $APART --apart-from citance-dev

# 2. Units, importance and global view together; what changed, as a file of a few MB.
[ -d small-v2 ] || hplus train stage2 "$HERE/small-v2.toml" --threads 2 --cache lower --out small-v2
python "$HERE/with_layers.py" --take small-v2 small-v1 small-v2-near-top.safetensors
# Half of it and half of an earlier run of an hour (experiments/LOG.md).
python "$HERE/with_layers.py" small-v1 "$HERE/small-v2-top.safetensors,small-v2-near-top.safetensors" mixed --int8

# 3. Apart from it, the lexical head: it reads layer 3, so a copy of four layers trains it at a third of the cost.
[ -f groups.jsonl.gz ] || hplus teach negatives pairs/*.jsonl.gz --from bm25 --from global:small-v1 \
  --teacher tokens:small-v1 --count 15 $APART --cache states --out groups.jsonl.gz
[ -f lexical.jsonl.gz ] || hplus teach scores groups.jsonl.gz --teacher tokens:small-v1 \
  --teacher '0.5*global:small-v1' --teacher '0.2*bm25' --cache states --out lexical.jsonl.gz
[ -f fewer.jsonl.gz ] || python "$HERE/fewer_documents.py" lexical.jsonl.gz 6000 fewer.jsonl.gz
[ -d four ] || python "$HERE/fewer_layers.py" small-v1 1,2,3,4 four
[ -d small-heads ] || hplus train stage2 "$HERE/small-heads.toml" --set student.start=four --threads 1 --cache lower --out small-heads
