"""A smaller model beside hplus-small and hplus-mini: what fewer layers cost, and save in time.

    python benchmarks/smaller.py EVAL MODEL --cache STATES --out docs/results
    python benchmarks/smaller.py EVAL MODEL --cache STATES --out docs/results --rate

MODEL: mini2, or another checkpoint.

The four test sets as in the README's table: at most 500 queries (seed 13), texts cut at 256 tokens,
each view rescoring its model's own global top 1,000. `smaller.jsonl` gets the lines of every set
and the paired differences of their macro from hplus-small's and hplus-mini's. `--rate` encodes 200
SciFact abstracts by all three, slices taking turns, and writes `smaller_rate.jsonl`: processor time
a text.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.types import F64
from hplus.views.fusion import fuse
from machine import record

SETS = ("scifact", "nfcorpus", "feedbackqa", "medicalqa")
QUERIES = 500
CELLS = ((32, 384), (32, 128), (16, 128))
WINDOW = 256
RIVALS = ("small", "mini")
ABSTRACTS, SLICE = 200, 20


def lines(bench: Bench) -> Iterator[tuple[str, float, F64]]:
    """Of one model and set: the line, vectors per document, nDCG@10 of every query."""
    views = {"global": bench.pooled(bench.global_), "lexical": bench.pooled(bench.lexical("head"))}
    yield "global", 1, bench.ndcg10(views["global"])

    def matched(units: str, width: int, budget: Budget) -> tuple[float, F64]:
        queries = bench.units(bench.queries, units, "head", width, Budget())
        documents = bench.units(bench.documents, units, "head", width, budget)
        scores = bench.pooled(rescore.maxsim_of_pools(queries, documents, bench.pools))
        return len(documents.weights) / len(bench.ids), scores

    vectors, tokens = matched("tokens", 384, Budget())
    yield "tokens, all, 384 wide", vectors, bench.ndcg10(tokens)
    fusion = bench.model.recipe.fusion
    for count, width in CELLS:
        vectors, phrase = matched("crf", width, Budget(count, policy="merge"))
        name = f"merged to {count}, {width} wide"
        yield f"phrases, {name}", vectors, bench.ndcg10(phrase)
        all_views = {**views, "phrase": phrase}
        fused = fuse({view: all_views[view] for view in fusion}, fusion)
        yield f"hybrid, phrases {name}", vectors + 1, bench.ndcg10(fused)


def quality(options: argparse.Namespace) -> None:
    models = {Path(name).name: name for name in (options.model, *RIVALS)}
    smaller = Path(options.model).name
    found: dict[str, dict[str, dict[str, F64]]] = {name: {} for name in models}
    rows = []
    for name in SETS:
        data = sample(read_beir(options.data / name, "test"), QUERIES, seed=13)
        for source, place in models.items():
            model = HPlus(place, window=WINDOW, long="cut")
            for line, vectors, own in lines(Bench(model, data, options.cache)):
                found[source].setdefault(line, {})[name] = own
                row = {"set": name, "model": source, "line": line, "queries": len(own)}
                row |= {"vectors": round(vectors, 1), "ndcg10": round(100 * float(own.mean()), 2)}
                rows.append(row | {"fingerprint": model.fingerprint[:12]})
    for rival, (line, by_set) in product(RIVALS, found[smaller].items()):
        d = paired_difference(by_set, found[rival][line])
        figures = {k: round(100 * getattr(d, k), 2) for k in ("mean", "low", "high")}
        rows.append({"set": "macro", "model": f"{smaller} minus {rival}", "line": line, **figures})
    text = "\n".join(json.dumps(row) for row in rows) + "\n"
    print(text, end="")
    (options.out / "smaller.jsonl").write_text(text)


def rate(options: argparse.Namespace) -> None:
    texts = read_beir(options.data / "scifact", "test").documents[:ABSTRACTS]
    sources = {"smaller": options.model, **{name: name for name in RIVALS}}
    models = {name: HPlus(place, window=WINDOW, long="cut") for name, place in sources.items()}
    for model in models.values():  # what the first call prepares is not the rate
        model.encode_document(texts[:SLICE])
    spent: dict[str, list[float]] = {name: [] for name in models}
    for first in range(0, ABSTRACTS, SLICE):
        for name, model in models.items():
            started = time.process_time()
            model.encode_document(texts[first : first + SLICE])
            spent[name].append((time.process_time() - started) / SLICE)
    rows = []
    for name, own in spent.items():
        ratios = np.array(own) / np.array(spent["smaller"])
        rows.append(
            {
                "model": Path(sources[name]).name,
                "abstracts": ABSTRACTS,
                "cpu_ms": round(1000 * float(np.mean(own)), 1),
                "times_the_smaller": round(sum(own) / sum(spent["smaller"]), 2),
                "by_slice": f"{ratios.min():.2f} to {ratios.max():.2f}",
            }
        )
    record(options.out / "smaller_rate.jsonl", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rate", action="store_true")
    options = parser.parse_args()
    (rate if options.rate else quality)(options)


if __name__ == "__main__":
    main()
