"""What passages are worth on long documents: an index of whole documents against one of passages.

    python benchmarks/passages.py ../shared/data/pairs/elife_heading_paragraph.jsonl.gz \
        ../shared/data/texts/elife_medicine_paragraphs.txt.gz --folder /tmp/passages

Long documents are made of short texts: each of about 20 kB has three paragraphs to which a heading
belongs, from three articles, between others, shuffled. The query is a heading, the one relevant
document the one that has its paragraph. Mean reciprocal rank at 10 of `Index.search`, with the
interval of the paired difference to whole documents, and bytes of segments per document. Indexes
already in --folder are used again.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from hplus import HPlus, Index
from hplus.evaluate.statistics import interval, paired_difference

SIZE = 20_000
QUERIES = 3  # of each document
VIEWS = ("hybrid", "global", "phrase")


def documents_of(
    pairs: Path, texts: Path, count: int, seed: int = 13
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Made-up documents (id, text), and queries with the id of their document."""
    random = np.random.default_rng(seed)
    with gzip.open(pairs, "rt", encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    with gzip.open(texts, "rt", encoding="utf-8") as lines:
        others = [line.strip() for line in lines]
    articles: dict[str, dict[str, Any]] = {}
    for row in (rows[i] for i in random.permutation(len(rows))):
        articles.setdefault(str(row.get("doc", row["positive"])), row)  # one pair of an article
    chosen = list(articles.values())[: QUERIES * count]
    fillers = iter(random.permutation(len(others)).tolist())
    documents, queries = [], []
    for number in range(count):
        own = chosen[QUERIES * number : QUERIES * (number + 1)]
        paragraphs = [row["positive"] for row in own]
        while sum(map(len, paragraphs)) < SIZE:
            paragraphs.append(others[next(fillers)])
        order = random.permutation(len(paragraphs))
        documents.append((f"d{number}", "\n\n".join(paragraphs[i] for i in order)))
        queries += [(row["query"], f"d{number}") for row in own]
    return documents, queries


def reciprocal_ranks(index: Index, queries: list[tuple[str, str]], view: str) -> np.ndarray:
    """1 / rank of the relevant document, 0 beyond ten."""
    found = []
    for query, wanted in queries:
        ids = [hit.id for hit in index.search(query, k=10, view=view)]
        found.append(1 / (ids.index(wanted) + 1) if wanted in ids else 0.0)
    return np.array(found)


def main() -> None:
    """Index, search, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--tokens", type=int, nargs="+", default=[200])
    options = parser.parse_args()
    documents, queries = documents_of(options.pairs, options.texts, options.documents)
    size = np.mean([len(text) for _, text in documents])
    print(f"{len(documents)} documents of {size:,.0f} characters, {len(queries)} queries\n")
    print("| documents | view | MRR@10 | minus whole | vectors | bytes per document |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    model = HPlus()
    whole: dict[str, np.ndarray] = {}
    for tokens in [None, *options.tokens]:
        path = options.folder / f"{tokens or 'whole'}.hplus"
        made = Index.open(path, model=model) if path.exists() else None
        with made or Index.create(path, model, passages=tokens) as index:
            index.add(documents, progress=True)  # what is there already costs nothing
            stats = index.stats()
            for view in VIEWS:
                ranks = reciprocal_ranks(index, queries, view)
                whole.setdefault(view, ranks)
                mean = interval({"long": ranks})
                gain = paired_difference({"long": ranks}, {"long": whole[view]})
                against = (
                    ""
                    if tokens is None
                    else (f"{100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]")
                )
                print(
                    f"| {'whole' if tokens is None else f'passages of {tokens}'} | {view} "
                    f"| {100 * mean.mean:.1f} | {against} | {stats.units / len(index):.0f} "
                    f"| {sum(stats.bytes.values()) / len(index):,.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
