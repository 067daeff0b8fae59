#!/usr/bin/env bash
# hplus-mini v1, from data to checkpoint:   experiments/train_mini.sh ../shared/data WORK
# Everything is seeded; encoded texts stay in WORK/states, so a second run takes minutes.
set -euo pipefail
DATA=$1
WORK=$2
UNITS=${3:-noun-phrase}
mkdir -p "$WORK"

# Classes A and B of the span and term lists, the "yes" files of the pairs: what may be shipped.
SPANS="craft_np oastm_np jnlpba bc5cdr ncbi_disease anatem bc2gm measeval"
TERMS="mesh disease_ontology mondo hpo efo gene_ontology chebi_short icd10cm hgnc_gene_names cso
       physh uat_astronomy wordnet_multiword"
PAIRS="elife_to_abstract elife_citance_abstract elife_heading_paragraph elife_to_digest openstax
       ontology_definitions acl_title_abstract wikipathways squad_dev medquad"

spans() { for corpus in $2; do echo "$DATA/spans/$corpus/$1.jsonl.gz"; done; }
options() { for name in $3; do echo "$1 $2/$name$4"; done; }
APART=$(for folder in "$DATA"/eval/*/; do echo "--apart-from $folder"; done)
# v1 came before the patterns of spelling.
COMMON="$APART --cache $WORK/states --device cpu --report --no-patterns"

# 1. A chunker from the corpora that mark every noun phrase.
if [ ! -d "$WORK/chunker" ]; then
  hplus teach labels $(spans train "craft_np oastm_np") $COMMON --chunker none --out "$WORK/np-train.jsonl.gz"
  hplus teach labels $(spans dev "craft_np oastm_np") $COMMON --chunker none --out "$WORK/np-dev.jsonl.gz"
  hplus train heads "$WORK/np-train.jsonl.gz" --dev "$WORK/np-dev.jsonl.gz" --model mini --epochs 6 --no-patterns \
    --cache "$WORK/states" --device cpu --out "$WORK/chunker" --name chunker
fi

# 2. Labels of everything: gold, terms, rules, the chunker's noun phrases, words.
COMMON="$COMMON $(options --terms "$DATA/terms" "$TERMS" .txt.gz) --chunker $WORK/chunker --units $UNITS"
PAIR_FILES=$(for name in $PAIRS; do echo "$DATA/pairs/$name.jsonl.gz"; done)
hplus teach labels $(spans train "$SPANS") $COMMON --out "$WORK/$UNITS-spans.jsonl.gz"
hplus teach labels $PAIR_FILES $COMMON --sample 400 --out "$WORK/$UNITS-pairs.jsonl.gz"
hplus teach labels $(spans dev "$SPANS") $COMMON --sample 500 --out "$WORK/$UNITS-dev.jsonl.gz"

# 3. The heads.
hplus train heads "$WORK/$UNITS-spans.jsonl.gz" "$WORK/$UNITS-pairs.jsonl.gz" \
  --dev "$WORK/$UNITS-dev.jsonl.gz" $(options --pairs "$DATA/pairs" "$PAIRS" .jsonl.gz) $APART \
  --model mini --sample 800 --epochs 6 --no-patterns --cache "$WORK/states" --device cpu --out "$WORK/$UNITS" --name hplus-mini
