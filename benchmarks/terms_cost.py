"""What 170,000 terms cost: loading, and their share of encoding time.

python benchmarks/terms_cost.py ../shared/data/eval/scifact ../shared/data/terms
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from hplus import HPlus, Terms
from hplus.evaluate.data import read_beir
from hplus.units.rules import content_word_runs
from hplus.units.terms import override, read_terms

LISTS = ("mesh", "mondo")
ABSTRACTS, ROUNDS = 200, 3

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("terms", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    terms = Terms(t for name in LISTS for t in read_terms(options.terms / f"{name}.txt.gz"))
    loading = time.perf_counter() - started
    texts = read_beir(options.data).documents[:ABSTRACTS]
    model = HPlus(long="cut")
    tokens = model.checkpoint.backbone.tokenizer.tokens(texts)
    begins = content_word_runs(tokens)
    encoding = matching = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        model.encode_document(texts)
        encoding = min(encoding, time.perf_counter() - started)
        started = time.perf_counter()
        changed = override(begins, tokens, terms)
        matching = min(matching, time.perf_counter() - started)
    row = {
        "terms": len(terms),
        "load_s": round(loading, 2),
        "encode_ms_per_abstract": round(1000 * encoding / ABSTRACTS, 2),
        "terms_ms_per_abstract": round(1000 * matching / ABSTRACTS, 3),
        "share_of_encoding": round(matching / encoding, 4),
        "boundaries_changed": int((changed != begins).sum()),
    }
    print(json.dumps(row))
