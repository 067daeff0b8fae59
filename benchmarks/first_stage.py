"""Which first stage has the ten best documents of an exact scan among its candidates?

    python benchmarks/first_stage.py ../shared/data/eval --cache /tmp/units --folder /tmp/first \
        --out docs/results/first_stage.jsonl

A first stage orders all documents by something cheaper than their scores; the first 30 to 4,000 of
that order are candidates, and an exact score of these gives the hits. So recall@10 is the share of
the ten best of an exact scan, by the phrase view or by the hybrid, that are candidates; a tie with
others counts as the middle of them. Two orders are united by half of the candidates from each.

First all documents of SETS as they are (real_units.py: 32 merged units of width 128, in int8), then
SciFact's among made-up ones as in scale.py, where a global vector is the mean of its document's
units and the words of a made-up document are those of its original. The queries are 25 each of
SciFact and NFCorpus. Times are processor milliseconds on one core, medians.

The global order is exact: it bounds what a library of near neighbours can give. Product codes of 4
bits are faiss's (`pip install faiss-cpu`; skipped where it is not installed): MaxSim by codes of
all units, where the time is that of its fast scan for the nearest unit of all, which writes no
maxima by document; and candidates by the nearest 4,000 units of each unit of the query, of all or
of one list in 16, where a document without one of them gets the similarity of the last.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hplus import Encoded, Index, Search
from hplus.evaluate.data import read_beir
from hplus.kernels import implementation, weighted_maxsim
from hplus.search.local import estimates, global_scores, lexical_scores, phrase_scores
from hplus.search.searcher import fitted
from hplus.storage.segment import Segment, dequantise
from hplus.types import F32, F64, I64, concatenate, item_of_row
from hplus.views import fusion, lexical, phrase
from kernels import processor
from machine import record
from real_units import BUDGET, WIDTH, real_units
from scale import HIDDEN, SEED, build, timed

try:
    import faiss
except ImportError:
    faiss = None

SETS = (HIDDEN, "nfcorpus", "npl-vaswani")
COUNTS = (30, 100, 200, 1000, 4000)
KINDS = ("real", "made-up")
MADE_UP = 100_000
ALPHAS = {"global": 1.5, "phrase": 1.0, "lexical": 0.1}  # those of hplus-small
UNITED = ("global", "lexical"), ("sketches", "global")
QUERIES = 25  # of each set
CODES = 64  # of 4 bits for a unit
NEAREST, LISTS, READ = 4_000, 1_024, 16
SAMPLE = 100_000  # units that codes and lists are learned from

Stage = Callable[[Encoded], tuple[F32 | F64, float]]
"""The estimated scores of all documents for a query, and the milliseconds that they took."""


def ours(segment: Segment) -> dict[str, Stage]:
    """What an index has: sketches, and its two other views."""
    every = np.arange(len(segment))

    def by(score: Callable[[Encoded], Any]) -> Stage:
        def stage(query: Encoded) -> tuple[F32 | F64, float]:
            scores, _, ms = timed(partial(score, query))
            return scores, ms

        return stage

    return {
        "exact scan": by(lambda query: phrase_scores(segment, query.units, every, None)),
        "sketches": by(lambda query: estimates(segment, query.units, every, None)),
        "global": by(lambda query: global_scores(segment, query.global_, every)),
        "lexical": by(lambda query: lexical_scores(segment, query.lexical, every)),
    }


def product_codes(segment: Segment) -> dict[str, Stage]:
    """Codes of 4 bits over the units, by faiss."""
    vectors = dequantise(segment.vectors, segment.scales)
    learned = vectors[:: max(1, len(vectors) // SAMPLE)]
    document = item_of_row(segment.offsets)
    plain = faiss.IndexPQ(WIDTH, CODES, 4, faiss.METRIC_INNER_PRODUCT)
    plain.train(learned)
    plain.add(vectors)
    decoded, fast = plain.reconstruct_n(0, len(vectors)), faiss.IndexPQFastScan(plain)
    nearest = faiss.IndexFlatIP(WIDTH)
    listed = faiss.IndexIVFPQFastScan(nearest, WIDTH, LISTS, CODES, 4, faiss.METRIC_INNER_PRODUCT)
    listed.train(learned)
    listed.add(vectors)
    listed.nprobe = LISTS // READ
    return {
        "4-bit codes: MaxSim": partial(by_codes, decoded, segment.offsets, fast),
        "4-bit codes: nearest units": partial(by_units, fast, document),
        f"4-bit codes: nearest units, one list in {READ}": partial(by_units, listed, document),
    }


def by_codes(decoded: F32, offsets: I64, fast: Any, query: Encoded) -> tuple[F32, float]:
    """The MaxSim of what the codes stand for, timed by a scan of the codes."""
    units = query.units
    _, _, ms = timed(partial(fast.search, units.vectors, 1))
    return weighted_maxsim(
        units.vectors, units.weights, decoded, None, offsets[:-1], offsets[1:]
    ), ms


def by_units(index: Any, document: I64, query: Encoded) -> tuple[F64, float]:
    """Documents by the nearest units of each unit of the query."""

    def scores() -> F64:
        units, count = query.units, int(document[-1]) + 1
        near, rows = index.search(units.vectors, NEAREST)  # the nearest first
        last = np.where(rows < 0, np.inf, near).min(axis=1)
        gains = np.where(rows < 0, 0, near - last[:, None]) * units.weights[:, None]
        # Of a document's units the first that is met: the nearest.
        pairs = np.arange(len(rows))[:, None] * count + document[rows]
        _, first = np.unique(pairs, return_index=True)
        found = np.full(count, -np.inf)
        met = document[rows].ravel()[first]
        found[met] = 0
        np.add.at(found, met, gains.ravel()[first])
        return found

    found, _, ms = timed(scores)
    return found, ms


def ranks(scores: F32 | F64, documents: I64) -> F64:
    """How many documents come before each of these; none that was not met is a candidate."""
    own = scores[documents]
    above = [int((scores > one).sum()) + (int((scores == one).sum()) - 1) / 2 for one in own]
    return np.where(own > -np.inf, above, np.inf)


def best_ten(scores: F32 | F64) -> I64:
    return np.argsort(-scores, kind="stable")[:10]


def measure(index: Index, queries: list[Encoded]) -> list[dict[str, Any]]:
    """A row for each stage: its time, and recall@10 by the number of candidates."""
    (part,) = index.engine.snapshot.parts
    stages = ours(part.segment)
    if faiss is None:
        print("faiss is not installed: product codes are left out (pip install faiss-cpu)")
    else:
        faiss.omp_set_num_threads(1)
        stages |= product_codes(part.segment)
    took: dict[str, list[float]] = {name: [] for name in stages}
    found: dict[str, dict[str, list[F64]]] = {"phrase": {}, "hybrid": {}}
    for whole in queries:
        query = fitted(index.engine, Search(whole), whole)
        scores = {}
        for name, stage in stages.items():
            scores[name], ms = stage(query)
            took[name].append(ms)
        exact = scores["exact scan"]
        views = {
            "global": scores["global"],
            "phrase": exact / phrase.scale(query.units),
            "lexical": scores["lexical"] / lexical.scale(query.lexical),
        }
        for view, own in (("phrase", exact), ("hybrid", fusion.fuse(views, ALPHAS))):
            hits = best_ten(own)
            for name in stages:
                found[view].setdefault(name, []).append(ranks(scores[name], hits))
            for pair in UNITED:
                # The better of its two ranks lets a document in, among half as many.
                both = 2 * np.minimum(*(found[view][name][-1] for name in pair))
                found[view].setdefault(" + ".join(pair), []).append(both)
    del found["phrase"]["exact scan"]
    for pair in UNITED:
        took[" + ".join(pair)] = [sum(own) for own in zip(*(took[n] for n in pair), strict=True)]
    return [
        {
            "stage": name,
            "ms": round(statistics.median(own), 2),
            **{
                view: recall(by_stage[name]) for view, by_stage in found.items() if name in by_stage
            },
        }
        for name, own in took.items()
    ] + [{"stage": "exact scores of candidates", "ms_of": scoring(part.segment, queries)}]


def recall(found: list[F64]) -> dict[int, float]:
    """Recall@10 by the number of candidates."""
    every = np.concatenate(found)
    return {count: round(float(np.mean(every < count)), 3) for count in COUNTS}


def scoring(segment: Segment, queries: list[Encoded]) -> dict[int, float]:
    """What exact scores of so many candidates take, the median in milliseconds."""
    random = np.random.default_rng(SEED)
    took = {}
    for count in COUNTS:
        places = np.sort(random.permutation(len(segment))[:count])
        runs = [
            timed(partial(phrase_scores, segment, query.units, places, None))[2]
            for query in queries
        ]
        took[count] = round(statistics.median(runs), 2)
    return took


def real_index(folder: Path, documents: Encoded) -> Index:
    """All documents as they are, in one segment."""
    if folder.exists():
        return Index.open(folder)
    width = documents.global_.shape[1]
    index = Index.create(
        folder, budget=BUDGET, width=WIDTH, global_width=width, fingerprint="first stage"
    )
    index.add_encoded([f"{row:05d}" for row in range(len(documents))], documents)
    index.compact()
    return index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the two indexes")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--made-up", type=int, default=MADE_UP, help="documents of the second")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    encoded = {name: real_units(options.data / name, options.cache) for name in SETS}
    documents = concatenate([own for own, _ in encoded.values()])
    random = np.random.default_rng(SEED)
    queries = [
        own[row]
        for _, own in (encoded[name] for name in SETS[:2])
        for row in np.sort(random.permutation(len(own))[:QUERIES]).tolist()
    ]
    rows: list[dict[str, Any]] = []
    hidden, ids = encoded[HIDDEN][0], read_beir(options.data / HIDDEN).document_ids
    made_up = options.folder / "made-up"
    for kind in options.kinds:
        if kind == "real":
            index = real_index(options.folder / kind, documents)
        else:
            build(made_up, hidden, ids, documents, options.made_up)
            index = Index.open(made_up)
        with index:
            about: Mapping[str, Any] = {"documents": len(index), "kind": kind}
            about |= {"cpu": processor(), "kernel": implementation(), "queries": len(queries)}
            rows += [{**about, **row} for row in measure(index, queries)]
        record(options.out, rows)


if __name__ == "__main__":
    main()
