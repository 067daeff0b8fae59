#!/usr/bin/env bash
# hplus-small v1, from data to checkpoint:   experiments/train_small.sh ../shared/data GTE-SMALL WORK
# GTE-SMALL: a folder with thenlper/gte-small (config.json, model.safetensors, tokenizer.json).
# Everything is seeded; encoded texts stay in WORK/states, so a second run takes minutes.
set -euo pipefail
DATA=$1
ENCODER=$2
WORK=$3
mkdir -p "$WORK"

# Classes A and B of the span and term lists, the "yes" files of the pairs: what may be shipped.
SPANS="craft_np oastm_np jnlpba bc5cdr ncbi_disease anatem bc2gm measeval"
TERMS="mesh disease_ontology mondo hpo efo gene_ontology chebi_short icd10cm hgnc_gene_names cso
       physh uat_astronomy wordnet_multiword"
PAIRS="elife_to_abstract elife_citance_abstract elife_heading_paragraph elife_to_digest openstax
       ontology_definitions acl_title_abstract wikipathways squad_dev medquad"

spans() { for corpus in $SPANS; do echo "$DATA/spans/$corpus/$1.jsonl.gz"; done; }
options() { for name in $3; do echo "$1 $2/$name$4"; done; }
APART=$(for folder in "$DATA"/eval/*/; do echo "--apart-from $folder"; done)

# 1. The encoder in int8, its states turned onto the principal axes of open texts.
if [ ! -d "$WORK/base" ]; then
  for name in elife_medicine_paragraphs openstax_paragraphs acl_abstracts; do
    gzip -dc "$DATA/texts/$name.txt.gz" | shuf -n 600 --random-source=<(yes 13)
  done > "$WORK/rotate.txt"
  hplus convert "$ENCODER" "$WORK/base" --rotate "$WORK/rotate.txt" --name hplus-small
fi

# 2. Labels: gold, terms, patterns of spelling, rules, the chunker's noun phrases, words.
COMMON="$APART $(options --terms "$DATA/terms" "$TERMS" .txt.gz) --cache $WORK/states --report"
hplus teach labels $(spans train) $COMMON --sample 1200 --out "$WORK/spans.jsonl.gz"
hplus teach labels $(options "" "$DATA/pairs" "$PAIRS" .jsonl.gz) $COMMON --sample 100 --out "$WORK/pairs.jsonl.gz"
hplus teach labels $(spans dev) $COMMON --sample 150 --out "$WORK/dev.jsonl.gz"

# 3. The heads, on layer 3 (chosen on labels: experiments/LOG.md).
hplus train heads "$WORK/spans.jsonl.gz" "$WORK/pairs.jsonl.gz" --dev "$WORK/dev.jsonl.gz" \
  $(options --pairs "$DATA/pairs" "$PAIRS" .jsonl.gz) $APART --model "$WORK/base" --layer 3 \
  --sample 300 --epochs 6 --cache "$WORK/states" --out "$WORK/small" --name hplus-small
