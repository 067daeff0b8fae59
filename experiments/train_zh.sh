#!/usr/bin/env bash
# hplus-zh v1, from data to checkpoint:   experiments/train_zh.sh ../shared/data BGE-SMALL-ZH WORK
# BGE-SMALL-ZH: a folder with BAAI/bge-small-zh-v1.5 (config.json, model.safetensors, tokenizer.json).
# No corpus of Chinese spans states a licence, so none is used: units are jieba's words and THUOCL's
# terms. make_zh_data.py needs opencc-python-reimplemented.
set -euo pipefail
DATA=$1
ENCODER=$2
WORK=$3
mkdir -p "$WORK"
cd "$(dirname "$0")/.."

TERMS=$(for name in medical it finance animal_food; do echo "--terms $DATA/terms/zh_thuocl_$name.txt.gz"; done)
APART=$(for name in cmdd-zh cmrc2018-zh xquad-zh; do echo "--apart-from $DATA/eval/$name"; done)

# 1. Texts, and the encoder in int8, pooled by [CLS] as it was trained, on its principal axes.
python experiments/make_zh_data.py "$DATA" "$WORK/data"
if [ ! -d "$WORK/base" ]; then
  cp -r "$ENCODER" "$WORK/encoder"
  # Its vocabulary has no capitals, but the tokenizer at hand keeps them: CT and DNA would be unknown.
  sed -i 's/"lowercase": false/"lowercase": true/' "$WORK/encoder/tokenizer.json"
  mkdir -p "$WORK/encoder/1_Pooling"
  echo '{"pooling_mode_cls_token": true}' > "$WORK/encoder/1_Pooling/config.json"
  shuf -n 250 --random-source=<(yes 13) "$WORK/data/texts.txt" > "$WORK/rotate.txt"
  hplus convert "$WORK/encoder" "$WORK/base" --rotate "$WORK/rotate.txt" --name hplus-zh
fi

# 2. Labels: terms, then jieba's words.
for part in lines dev; do
  hplus teach labels "$WORK/data/$part.txt" $TERMS $APART --units minimal --chunker none --report \
    --out "$WORK/$part.jsonl.gz"
done

# 3. The heads, on layer 2 of 4 (chosen on labels: experiments/LOG.md).
hplus train heads "$WORK/lines.jsonl.gz" --dev "$WORK/dev.jsonl.gz" --pairs "$WORK/data/drcd.jsonl.gz" \
  --pairs "$DATA/pairs/zh_drcd.jsonl.gz" $APART --model "$WORK/base" --layer 2 --sample 350 --epochs 8 \
  --cache "$WORK/states" --out "$WORK/zh" --name hplus-zh
