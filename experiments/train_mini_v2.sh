#!/usr/bin/env bash
# hplus-mini v2, from data to checkpoint:   experiments/train_mini_v2.sh ../shared/data WORK
# Everything is seeded and goes on where it was stopped; two cores with bfloat16: twenty minutes of groups and stored states, then an hour.
set -euo pipefail
DATA=$(realpath "$1")
WORK=$2
HERE=$(dirname "$(realpath "$0")")
mkdir -p "$WORK"
[ -d "$WORK/citance-dev" ] || python "$HERE/make_pairs.py" "$DATA/pairs" "$WORK"
cd "$WORK"
ln -sfn "$DATA" data        # where the configuration looks for its dev sets
APART=$(for folder in "$DATA"/eval/*/; do echo "--apart-from $folder"; done)

# 1. Groups of the documents nearest to each query, scored by hplus-small's own tokens.
[ -f scored.jsonl.gz ] || python "$HERE/near_groups.py" pairs small scored.jsonl.gz --cache states $APART --apart-from citance-dev

# 2. Every second layer or so of hplus-small, after two runs of an hour on states alone (experiments/LOG.md; their texts: mini_texts.py).
[ -d start6 ] || python "$HERE/fewer_layers.py" small 1,2,3,6,9,12 start6
[ -d mini-start ] || python "$HERE/with_layers.py" start6 "$HERE/mini-v2-more-top.safetensors" mini-start

# 3. All six layers, on the states of twelve and on what the groups are scored by; the model in int8.
[ -d mini-run ] || torchrun --nproc-per-node 2 -m hplus train stage2 "$HERE/mini-v2.toml" --cache cache --out mini-run
python "$HERE/with_layers.py" --take mini-run start6 mini-v2-layers.safetensors
python "$HERE/with_layers.py" start6 mini-v2-layers.safetensors mini2 --int8 --name hplus-mini2
