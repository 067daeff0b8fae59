#!/usr/bin/env bash
# hplus-zh v2, from data to checkpoint:   experiments/train_zh_v2.sh ../shared/data ZH-V1 WORK
# ZH-V1: a folder with hplus-zh v1 (experiments/train_zh.sh makes it).
# make_zh_data.py needs opencc-python-reimplemented. Seeded; goes on where it was stopped; one core: ten
# minutes of mining, two of stored states, twenty of training.
set -euo pipefail
DATA=$(realpath "$1")
FIRST=$(realpath "$2")
WORK=$3
HERE=$(dirname "$(realpath "$0")")
mkdir -p "$WORK"
cd "$WORK"
ln -sfn "$DATA" data     # where the configuration looks for its dev sets …
ln -sfn "$FIRST" zh-v1   # … and for its start
[ -d made ] || python "$HERE/make_zh_data.py" "$DATA" made
ln -sfn made/wiki-zh wiki-zh
APART=$(for name in eval/cmdd-zh eval/cmrc2018-zh eval/xquad-zh; do echo "--apart-from data/$name"; done)

# 1. Questions of DRCD in both scripts, and sentences of its paragraphs; v1, BM25 and labels teach.
[ -f groups.jsonl.gz ] || hplus teach negatives data/pairs/zh_drcd.jsonl.gz made/drcd.jsonl.gz made/sentences.jsonl.gz \
  --from bm25 --from global:zh-v1 --teacher tokens:zh-v1 --count 15 --margin 0.05 $APART --apart-from wiki-zh \
  --cache states --out groups.jsonl.gz
[ -f scored.jsonl.gz ] || hplus teach scores groups.jsonl.gz --teacher tokens:zh-v1 --teacher '0.3*global:zh-v1' \
  --teacher '0.2*bm25' --cache states --out scored.jsonl.gz

# 2. The upper two of four layers; what changed, as a file of some MB.
[ -d zh-v2 ] || hplus train stage2 "$HERE/zh-v2.toml" --set student.start=zh-v1 --threads 1 --cache lower --out zh-v2
python "$HERE/with_layers.py" --take zh-v2 zh-v1 zh-v2-top.safetensors
