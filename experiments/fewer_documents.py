"""Scored groups over fewer documents, so that their lower states are computed in minutes.

    python experiments/fewer_documents.py scored.jsonl.gz 2800 fewer.jsonl.gz

Documents are drawn at random; a group is kept if its positive and at least four of its negatives
are among them, without its other negatives.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from pathlib import Path

LEAST = 4
SEED = 13


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", type=Path)
    parser.add_argument("documents", type=int)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with gzip.open(options.groups, "rt", encoding="utf-8") as file:
        groups = [group for group in map(json.loads, file) if group.get("negatives")]
    every = sorted({text for own in groups for text in [own["positive"], *own["negatives"]]})
    drawn = set(random.Random(SEED).sample(every, options.documents))
    count = 0
    with gzip.open(options.out, "wt", encoding="utf-8") as file:
        for own in groups:
            places = [i for i, text in enumerate(own["negatives"]) if text in drawn]
            if own["positive"] not in drawn or len(places) < LEAST:
                continue
            negatives = [own["negatives"][i] for i in places]
            scores = [own["scores"][0], *(own["scores"][i + 1] for i in places)]
            row = {**own, "negatives": negatives, "scores": scores}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    print(f"{count:,} groups: {options.out}")


if __name__ == "__main__":
    main()
