#!/usr/bin/env bash
# hplus-mini v2, from texts to checkpoint:   experiments/train_mini_v2.sh ../shared/data WORK
# Everything is seeded and goes on where it was stopped; two cores with bfloat16: half an hour of stored states, then an hour.
set -euo pipefail
DATA=$(realpath "$1")
WORK=$2
HERE=$(dirname "$(realpath "$0")")
mkdir -p "$WORK"
[ -d "$WORK/citance-dev" ] || python "$HERE/make_pairs.py" "$DATA/pairs" "$WORK"
cd "$WORK"
ln -sfn "$DATA" data        # where the configuration looks for its dev sets
APART=$(for folder in "$DATA"/eval/*/; do echo "--apart-from $folder"; done)

# 1. Texts; no labels.
[ -f texts.jsonl.gz ] || python "$HERE/mini_texts.py" data texts.jsonl.gz $APART --apart-from citance-dev

# 2. Every second layer or so of hplus-small, after two runs of an hour (experiments/LOG.md; the first, on other texts, is mini-v2-top.safetensors).
[ -d start6 ] || python "$HERE/fewer_layers.py" small 1,2,3,6,9,12 start6
[ -d mini-start ] || python "$HERE/with_layers.py" start6 "$HERE/mini-v2-more-top.safetensors" mini-start

# 3. The states of all twelve layers as the target; what changed, as a file of a few MB; the model in int8.
[ -d mini-run ] || torchrun --nproc-per-node 2 -m hplus train stage2 "$HERE/mini-v2.toml" --cache cache --out mini-run
python "$HERE/with_layers.py" --take mini-run start6 mini-v2-most-top.safetensors
python "$HERE/with_layers.py" start6 mini-v2-most-top.safetensors mini-v2 --int8 --name hplus-mini
