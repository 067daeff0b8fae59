"""Scored groups of the documents nearest to each query, with sources in set shares:

    python experiments/near_groups.py WORK/pairs small WORK/scored.jsonl.gz --cache STATES \
        --apart-from ../shared/data/eval/scifact …

`hplus teach negatives` spreads negatives over a teacher's scores and leaves out what is too near to
the positive, so that the teacher puts every positive first and little is left to learn. Here a
group is taken from the 64 documents that the model's global view finds nearest: the twelve that its
weighted tokens score highest below the positive, and twelve of the others. Documents above the
positive may be answers, too, and are left out; where more than twelve are, the pair is. The logits
are the scores of the model's own weighted tokens, over 0.02.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.data import texts_of
from hplus.kernels import weighted_maxsim
from hplus.states_file import stored_states, weigh
from hplus.teach.duplicates import collect, near_duplicates
from hplus.types import F32, I64, Bool
from hplus.units.vectors import normalise

# Pairs of each file, so that none rules: half are questions and textbooks, half are papers.
SHARES = {
    "elife_citance_abstract": 5200,
    "elife_to_abstract": 3200,
    "medquad": 5000,
    "squad_dev": 5000,
    "openstax": 5000,
    "elife_heading_paragraph": 4000,
    "ontology_definitions": 1500,
    "acl_title_abstract": 1000,
    "elife_to_digest": 2000,
    "wikipathways": 400,
}
NEAREST, HARD, OTHERS, LEAST, ABOVE = 64, 12, 12, 8, 12
TAU, SEED = 0.02, 13


def read_pairs(folder: Path, random: np.random.Generator) -> list[tuple[str, str, str]]:
    """Query, positive and source, so many of each file."""
    found = []
    for source, count in SHARES.items():
        with gzip.open(folder / f"{source}.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        for place in random.permutation(len(rows))[:count]:
            found.append((rows[place]["query"], rows[place]["positive"], source))
    return found


def nearest(queries: F32, documents: F32, may: Bool) -> I64:
    """The rows of the documents nearest to each query, nearest first."""
    found = np.empty((len(queries), NEAREST), np.int64)
    for first in range(0, len(queries), 512):
        scores = queries[first : first + 512] @ documents.T
        scores[:, ~may] = -np.inf
        top = np.argpartition(-scores, NEAREST, axis=1)[:, :NEAREST]
        order = np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable")
        found[first : first + 512] = np.take_along_axis(top, order, 1)
    return found


def group_of(scores: F32, positive: float, random: np.random.Generator) -> I64 | None:
    """Places of the negatives of one query among its nearest documents; None: leave it out."""
    below = np.flatnonzero(scores <= positive)
    if len(scores) - len(below) > ABOVE or len(below) < LEAST:
        return None
    below = below[np.argsort(-scores[below], kind="stable")]
    others = random.permutation(below[HARD:])[:OTHERS]
    return np.concatenate([below[:HARD], others])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--apart-from", type=Path, action="append", default=[])
    options = parser.parse_args()
    random = np.random.default_rng(SEED)
    pairs = read_pairs(options.pairs, random)
    queries = list(dict.fromkeys(query for query, _, _ in pairs))
    documents = list(dict.fromkeys(positive for _, positive, _ in pairs))
    known = collect([text for folder in options.apart_from for text in texts_of(folder)])
    may = ~near_duplicates(documents, known)
    asked = ~near_duplicates(queries, known)

    model = HPlus(options.model, long="cut")
    head = model.checkpoint.head
    assert head is not None
    sides = []
    for texts, side in ((queries, "query"), (documents, "document")):
        stored = stored_states(model, texts, options.cache, side=side)
        weights = weigh(head, stored)
        every = np.ones(len(weights), np.bool_)
        tokens = rescore.units_of(stored, every, weights, model.dim, Budget())
        sides.append((normalise(stored.pooled.astype(np.float32)), tokens))
    (global_queries, query_tokens), (global_documents, document_tokens) = sides
    near = nearest(global_queries, global_documents, may)

    query_row = {text: row for row, text in enumerate(queries)}
    document_row = {text: row for row, text in enumerate(documents)}
    answers: dict[int, set[int]] = {}
    for query, positive, _ in pairs:
        answers.setdefault(query_row[query], set()).add(document_row[positive])
    written = left_out = 0
    with gzip.open(options.out, "wt", encoding="utf-8") as out:
        for query, positive, source in pairs:
            q, p = query_row[query], document_row[positive]
            others = np.array([row for row in near[q] if row not in answers[q]])
            rows = slice(*query_tokens.offsets[q : q + 2].tolist())
            met = np.concatenate([[p], others])
            scores = weighted_maxsim(
                query_tokens.vectors[rows],
                query_tokens.weights[rows],
                document_tokens.vectors,
                None,
                document_tokens.offsets[met],
                document_tokens.offsets[met + 1],
            ) / max(float(query_tokens.weights[rows].sum()), 1e-9)
            places = group_of(scores[1:], float(scores[0]), random)
            if places is None or not (may[p] and asked[q]):
                left_out += 1
                continue
            logits = np.concatenate([scores[:1], scores[1:][places]]) / TAU
            row = {
                "query": query,
                "positive": positive,
                "negatives": [documents[other] for other in others[places]],
                "scores": [round(float(x), 4) for x in logits - logits.max()],
                "source": source,
            }
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            written += 1
    print(f"{written:,} groups, {left_out:,} pairs left out: {options.out}")


if __name__ == "__main__":
    main()
