"""What int8 costs hplus-small: nDCG@10 and states beside the same model in float32.

    python benchmarks/precision.py EVAL --gte FOLDER --set nfcorpus --cache STATES --out RESULTS

FOLDER: gte-small in float32. Heads, rotation and fusion are those of hplus-small on both sides,
documents merged to 32. `--queries` and `--documents` take a seeded sample of the queries, for each
at most three of its relevant documents, and what BM25 finds first for them; documents left out
count for nothing. The rows of a set, one a view, go to `precision.jsonl` in place of older ones.

    python benchmarks/precision.py EVAL --gte FOLDER --bits

prints the cosine of token states with float32 for weights of 7 and of 8 bits.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hplus import HPlus
from hplus.backbones import int8
from hplus.backbones.bert import FLOAT32_FILE, INT8_FILE, Bert
from hplus.backbones.encode import encode_states
from hplus.backbones.files import ROTATION, folder_reference, read_config, read_weights
from hplus.evaluate.bench import Bench
from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import RetrievalSet, read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.types import F32, F64
from hplus.views.fusion import fuse

SEED, WIDTH, RELEVANT, TEXTS = 13, 384, 3, 12
BITS_SETS = ("scifact", "nfcorpus", "feedbackqa")


def small_with(weights: dict[str, Any], folder: Path) -> HPlus:
    """hplus-small on other weights of the same encoder, turned by the same rotation."""
    model = HPlus("small", long="cut")
    own = model.checkpoint.backbone
    shipped = read_weights(Path(own.reference["path"]) / INT8_FILE)
    backbone = Bert(
        read_config(folder),
        weights | {ROTATION: shipped[ROTATION]},
        own.tokenizer,
        folder_reference("bert", folder)
        | {"weights": str(weights["embeddings.word_embeddings.weight"].dtype)},
    )
    model.checkpoint = replace(model.checkpoint, backbone=backbone)
    return model


def some(data: RetrievalSet, queries: int, documents: int) -> RetrievalSet:
    """Some of the queries, a few relevant documents of each, and what is hard to tell from them."""
    if documents >= len(data.documents):
        return sample(data, queries, SEED)
    data = sample(data, queries, SEED)
    row_of = {id_: row for row, id_ in enumerate(data.document_ids)}
    kept: set[int] = set()
    for query in data.query_ids:
        grades = data.judgements[query]
        relevant = sorted((id_ for id_ in grades if grades[id_] > 0), key=lambda id_: -grades[id_])
        kept |= {row_of[id_] for id_ in relevant[:RELEVANT]}
    found, _ = BM25(data.documents).search(data.queries, k=documents)
    for row in found.T.ravel().tolist():  # the first of every query, then the second …
        if len(kept) >= documents:
            break
        kept.add(row)
    rows = sorted(kept)
    ids = [data.document_ids[row] for row in rows]
    judged = {
        query: {id_: grade for id_, grade in data.judgements[query].items() if row_of[id_] in kept}
        for query in data.query_ids
    }
    return replace(
        data,
        document_ids=ids,
        documents=[data.documents[row] for row in rows],
        judgements=judged,
    )


def ndcg_by_view(model: HPlus, data: RetrievalSet, cache: Path) -> dict[str, F64]:
    """nDCG@10 of every query by every view, as an index made with the defaults ranks."""
    bench, recipe = Bench(model, data, cache), model.recipe
    phrase, _ = bench.phrase("crf", "head", WIDTH, recipe.query_budget, recipe.document_budget)
    token, _ = bench.phrase("tokens", "head", WIDTH, recipe.query_budget, recipe.query_budget)
    found = {
        "global": bench.global_,
        "phrase": phrase,
        "lexical": bench.lexical("head"),
        "weighted token": token,
    }
    pooled = {view: bench.pooled(scores) for view, scores in found.items()}
    pooled["hybrid"] = fuse({view: pooled[view] for view in recipe.fusion}, recipe.fusion)
    return {view: bench.ndcg10(scores) for view, scores in pooled.items()}


def compare(options: argparse.Namespace) -> None:
    folder = options.gte
    data = some(read_beir(options.data / options.set, "test"), options.queries, options.documents)
    float32 = small_with(read_weights(folder / FLOAT32_FILE), folder)
    theirs = ndcg_by_view(float32, data, options.cache)
    ours = ndcg_by_view(HPlus("small", long="cut"), data, options.cache)
    rows = []
    for view in ours:
        found = paired_difference({options.set: ours[view]}, {options.set: theirs[view]})
        rows.append(
            {
                "set": options.set,
                "view": view,
                "queries": len(data.queries),
                "documents": len(data.documents),
                "int8": round(100 * float(ours[view].mean()), 2),
                "float32": round(100 * float(theirs[view].mean()), 2),
                **{k: round(100 * getattr(found, k), 2) for k in ("mean", "low", "high")},
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    file = options.out / "precision.jsonl"
    kept = file.read_text().splitlines() if file.exists() else []
    others = [line for line in kept if json.loads(line)["set"] != options.set]
    file.write_text("\n".join([*others, *map(json.dumps, rows)]) + "\n")


def states(model: HPlus, texts: list[str]) -> F32:
    """Token states of all texts, of length 1."""
    backbone = model.checkpoint.backbone
    reading = model.recipe.reading("document")
    found = encode_states(backbone, backbone.tokenizer.tokens(texts), reading, threads=2).states
    normal: F32 = found / np.linalg.norm(found, axis=1, keepdims=True)
    return normal


def bits(options: argparse.Namespace) -> None:
    texts = [
        text
        for name in BITS_SETS
        for text in sample(read_beir(options.data / name, "test"), TEXTS, SEED).documents[:TEXTS]
    ]
    weights = read_weights(options.gte / FLOAT32_FILE)
    exact = states(small_with(weights, options.gte), texts)
    for width in (7, 8):
        int8.LINEAR_BITS = width
        own = states(small_with(int8.quantise(weights), options.gte), texts)
        cosines = (own * exact).sum(axis=1)
        row = {"bits": width, "mean": float(cosines.mean()), "lowest": float(cosines.min())}
        print(json.dumps({k: round(v, 4) for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--gte", type=Path, required=True)
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--cache", type=Path, default=Path("states"))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--bits", action="store_true")
    arguments = parser.parse_args()
    (bits if arguments.bits else compare)(arguments)
