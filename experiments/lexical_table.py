"""What the lexical view gives by itself: the importance of tokens, the lexical head, BM25.

    python experiments/lexical_table.py ../shared/data/eval MODEL --cache STATES \\
        --sets nfcorpus:dev feedbackqa:dev medicalqa-dev:dev

MODEL: a checkpoint with a trained lexical head; a copy of four layers will do, since heads read the
third. Whole corpora, at most 500 queries a set (seed 13), texts cut at the window. *start* is the
head before training, BM25 with the model's idf; *corpus idf* weighs a query's tokens by the
document frequencies of the set at hand, which no training knows.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from hplus import HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import RetrievalSet, read_beir, sample
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.statistics import paired_difference
from hplus.heads.lexical import LexicalHead
from hplus.states_file import StoredStates, stored_states, weigh
from hplus.types import F32, F64, item_of_row
from hplus.views import lexical

QUERIES, SEED = 500, 13
LINES = ("importance", "start", "trained", "start, corpus idf", "trained, corpus idf", "BM25")


def ndcg10(data: RetrievalSet, scores: F32) -> F64:
    """nDCG@10 of every query over the whole corpus, ties by id."""
    ids = np.array(data.document_ids)
    values = np.empty(len(data.queries))
    for row, name in enumerate(data.query_ids):
        edge = np.partition(scores[row], -10)[-10]
        near = np.flatnonzero(scores[row] >= edge)
        best = near[np.lexsort((ids[near], -scores[row][near]))[:10]]
        values[row] = ndcg(ids[best].tolist(), data.judgements[name])
    return values


def corpus_idf(documents: StoredStates, vocabulary: int) -> F32:
    """BM25's idf of every token id, f32[V], by the documents at hand."""
    text = item_of_row(documents.tokens.offsets)
    pairs = np.unique(text * (2**32) + documents.tokens.ids)
    frequency = np.bincount(pairs % 2**32, minlength=vocabulary)
    n = len(documents.tokens.offsets) - 1
    return np.log1p((n - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)


def measure(model: HPlus, data: RetrievalSet, cache: Path) -> dict[str, F64]:
    """nDCG@10 of every query, by line."""
    found = model.checkpoint
    queries = stored_states(model, data.queries, cache, side="query", progress="queries")
    documents = stored_states(model, data.documents, cache, progress="documents")
    tokenizer = found.backbone.tokenizer
    assert found.lexical is not None
    assert found.head is not None
    assert found.idf is not None
    # As training starts: every occurrence counts 1, the table is idf.
    start = LexicalHead(np.zeros(model.dim, np.float32), 1.0, found.idf.table)
    inner = documents.inner.astype(np.float32)

    def scores(asked: F32, given: F32) -> F32:
        views = [
            lexical.represent(side.tokens, weights, tokenizer.unknown)
            for side, weights in ((queries, asked), (documents, given))
        ]
        return rescore.lexical(views[0], views[1], tokenizer.vocabulary)

    own = corpus_idf(documents, tokenizer.vocabulary)
    lines = {"importance": scores(weigh(found.head, queries), weigh(found.head, documents))}
    for name, head in (("start", start), ("trained", found.lexical)):
        asked, given = head.of_query(queries.tokens.ids), head.of_document(documents.tokens, inner)
        lines[name] = scores(asked, given)
        known = own[queries.tokens.ids] / np.maximum(asked, np.float32(1e-3))
        lines[f"{name}, corpus idf"] = scores(known, given)
    bm25 = BM25(data.documents)
    lines["BM25"] = np.stack([bm25.scores(query) for query in data.queries])
    return {name: ndcg10(data, own) for name, own in lines.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    model.checkpoint = replace(model.checkpoint, recipe=replace(model.recipe, lexical="head"))
    table: dict[str, dict[str, F64]] = {line: {} for line in LINES}
    for name in options.sets:
        folder, _, split = name.rpartition(":")
        data = sample(read_beir(options.data / folder, split), QUERIES, seed=SEED)
        for line, own in measure(model, data, options.cache).items():
            table[line][name] = own
    for line in LINES:
        values = [100 * float(own.mean()) for own in table[line].values()]
        print(f"{line}:", *(f"{value:.2f}" for value in values), f"macro {np.mean(values):.2f}")
    for rival in LINES:
        if rival != "trained":
            d = paired_difference(table["trained"], table[rival])
            print(
                f"trained minus {rival} {100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]"
            )


if __name__ == "__main__":
    main()
