"""How much of a text is read, and in one pass or in several: quality and processor time.

    python experiments/windows.py small ../shared/data/eval/nfcorpus:dev WORK/citance-dev:dev …

Whole texts, as an index encodes them, by the model's own budget, width and weights of the views:
windows of 256 tokens (cut after the first, or stitched) and of 512 (the same), or the ones that
`--variant 256,stitch` names. nDCG@10 over each variant's own global top 1,000, 300 queries a set
(seed 13), macro of the sets, and the paired differences from the first.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from hplus import HPlus
from hplus.evaluate import rescore
from hplus.evaluate.data import RetrievalSet, read_beir, sample
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.statistics import paired_difference
from hplus.types import F64, I64
from hplus.views.fusion import fuse

VARIANTS = ("256,cut", "256,stitch", "512,cut", "512,stitch")
QUERIES, POOL = 300, 1_000


def ndcg10(data: RetrievalSet, scores: F64, pools: I64) -> F64:
    """nDCG@10 of every query, ties by id."""
    ids = np.array(data.document_ids)
    values = []
    for row, (query, own) in enumerate(zip(data.query_ids, scores, strict=True)):
        names = ids[pools[row]]
        best = np.lexsort((names, -own))[:10]
        values.append(ndcg(names[best].tolist(), data.judgements[query]))
    return np.array(values)


def measured(model: HPlus, data: RetrievalSet) -> tuple[dict[str, F64], float]:
    """Every view, and processor seconds a document."""
    began = time.process_time()
    documents = model.encode_document(data.documents, progress=True)
    seconds = (time.process_time() - began) / len(data.documents)
    queries = model.encode_query(data.queries)
    scores = queries.global_ @ documents.global_.T
    pools = np.argsort(-scores, axis=1, kind="stable")[:, :POOL]
    vocabulary = model.checkpoint.backbone.tokenizer.vocabulary
    lexical = rescore.lexical(queries.lexical, documents.lexical, vocabulary)
    views = {
        "global": np.take_along_axis(scores, pools, axis=1).astype(np.float64),
        "phrase": rescore.maxsim(queries.units, documents.units),
        "lexical": lexical,
    }
    for name in ("phrase", "lexical"):
        views[name] = np.take_along_axis(views[name], pools, axis=1).astype(np.float64)
    views["hybrid"] = fuse({name: views[name] for name in model.recipe.fusion}, model.recipe.fusion)
    return {name: ndcg10(data, own, pools) for name, own in views.items()}, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("sets", nargs="+", metavar="FOLDER:SPLIT")
    parser.add_argument("--variant", action="append", metavar="WINDOW,LONG", default=[])
    options = parser.parse_args()
    variants = options.variant or VARIANTS
    found: dict[str, dict[str, dict[str, F64]]] = {}
    for variant in variants:
        window, _, long = variant.partition(",")
        model = HPlus(options.model, window=int(window), long=long)
        for name in options.sets:
            folder, _, split = name.rpartition(":")
            data = sample(read_beir(Path(folder), split), QUERIES, seed=13)
            lines, seconds = measured(model, data)
            for line, own in lines.items():
                found.setdefault(variant, {}).setdefault(line, {})[name] = own
            values = {line: round(100 * float(own.mean()), 2) for line, own in lines.items()}
            print(f"{variant}: {Path(folder).name}", values, f"{1e3 * seconds:.1f} ms", flush=True)
    first = found[variants[0]]
    for variant, own in found.items():
        for line, by_set in own.items():
            macro = 100 * np.mean([values.mean() for values in by_set.values()])
            d = paired_difference(by_set, first[line])
            print(f"{variant}: {line} {macro:.2f}", end=" ")
            print(f"{100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]")


if __name__ == "__main__":
    main()
