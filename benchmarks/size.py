"""Bytes per document in an int8 index against token vectors, and what int8 costs in nDCG@10.

    python benchmarks/size.py ../shared/data/eval --cache /tmp/states --out docs/results/size.jsonl

Texts cut at 256 tokens, unit vectors 128 wide. What counts is what the phrase and lexical views
keep: codes, scales, weights, spans and postings; token vectors are 128 float16 numbers for every
token of the same texts and nothing else. The bars: at most 0.16, 0.09 and 0.06 of that at 64, 32
and 16 units. nDCG@10 is that of `Index.search` with the phrase view over the whole corpus. A
quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from encoded_sets import WIDTH, EncodedSet, encoded_set
from hplus import Budget, Encoded, Index
from hplus.evaluate.metrics import ndcg
from hplus.storage.segment import Format

SETS = ("scifact", "nfcorpus")
BUDGETS = (64, 32, 16)
COUNTED = ("units", "weights", "spans", "lexical")
TOKEN_BYTES = 2 * WIDTH


def built(folder: Path, found: EncodedSet, documents: Encoded, count: int, format: Format) -> Index:
    """An index of documents already within the budget."""
    index = Index.create(
        folder / f"{format}-{count}",
        budget=Budget(count, policy="merge"),
        width=WIDTH,
        global_width=documents.global_.shape[1],
        fingerprint=found.fingerprint,
        format=format,
    )
    index.add_encoded(found.data.document_ids, documents)
    index.compact()
    return index


def quality(index: Index, found: EncodedSet) -> float:
    """Mean nDCG@10 in points."""
    values = []
    for row, query in enumerate(found.data.query_ids):
        hits = index.search(found.queries[row], view="phrase", k=10)
        values.append(ndcg([hit.id for hit in hits], found.data.judgements[query]))
    return 100 * sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    options = parser.parse_args()
    lines = []
    for name in options.sets:
        found = encoded_set(options.data / name, options.cache)
        n = len(found.documents)
        for count in BUDGETS:
            documents = found.documents.at(budget=Budget(count, policy="merge"))
            with tempfile.TemporaryDirectory() as folder:
                with built(Path(folder), found, documents, count, "int8") as index:
                    sizes = {part: size / n for part, size in index.stats().bytes.items()}
                    int8 = quality(index, found)
                with built(Path(folder), found, documents, count, "f32") as index:
                    f32 = quality(index, found)
            counted = sum(sizes[part] for part in COUNTED)
            line = {
                "set": name,
                "budget": count,
                "bytes": round(counted),
                **{part: round(sizes[part]) for part in (*COUNTED, "global", "other")},
                "token_bytes": round(found.tokens * TOKEN_BYTES / n),
                "ratio": round(counted * n / (found.tokens * TOKEN_BYTES), 4),
                "ndcg10_f32": round(f32, 2),
                "ndcg10_int8": round(int8, 2),
                "change": round(int8 - f32, 2),
            }
            lines.append(line)
            print(json.dumps(line), flush=True)
    options.out.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


if __name__ == "__main__":
    main()
