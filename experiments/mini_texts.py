"""The texts that hplus-mini v2 learns hplus-small's states from:

    python experiments/mini_texts.py ../shared/data WORK/texts.jsonl.gz \
        --apart-from ../shared/data/eval/scifact …

One line a document, with a query beside it so that short texts are learned, too: pairs of the files
that may be shipped, and open paragraphs, neighbours joined until they are as long as abstracts are,
with their first sentence. No label is used, so no negatives are needed. Near duplicates of
evaluation texts are left out and counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hplus.evaluate.data import texts_of
from hplus.teach.duplicates import collect, near_duplicates

# Different documents of each source, so that none rules.
PAIRS = {
    "elife_citance_abstract": 3000,
    "elife_to_abstract": 2500,
    "elife_heading_paragraph": 4000,
    "elife_to_digest": 1500,
    "medquad": 3500,
    "openstax": 3000,
    "squad_dev": 1600,
    "acl_title_abstract": 1500,
    "ontology_definitions": 1200,
    "wikipathways": 400,
}
PARAGRAPHS = {"elife_medicine_paragraphs": 4500, "openstax_paragraphs": 1800, "acl_abstracts": 700}
CHARACTERS = 1000, 2400
"""Joined paragraphs are at least as long as a number drawn between these."""
SEED = 13
_END = re.compile(r"(?<=[.?!]) ")


def joined(texts: list[str], random: np.random.Generator) -> Iterator[str]:
    """Neighbours one after another, each text once."""
    whole, wanted = "", random.integers(*CHARACTERS)
    for text in texts:
        whole = f"{whole} {text}".strip()
        if len(whole) >= wanted:
            yield whole
            whole, wanted = "", random.integers(*CHARACTERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--apart-from", type=Path, action="append", default=[])
    options = parser.parse_args()
    random = np.random.default_rng(SEED)
    rows: dict[str, dict[str, str]] = {}
    for source, count in PAIRS.items():
        with gzip.open(
            options.data / "pairs" / f"{source}.jsonl.gz", "rt", encoding="utf-8"
        ) as lines:
            pairs = [json.loads(line) for line in lines]
        pairs = [pairs[place] for place in random.permutation(len(pairs))]
        new = {p["positive"]: p["query"] for p in pairs if p["positive"] not in rows}
        for text in list(new)[:count]:
            rows[text] = {"query": new[text], "positive": text, "source": source}
    for source, count in PARAGRAPHS.items():
        name = options.data / "texts" / f"{source}.txt.gz"
        with gzip.open(name, "rt", encoding="utf-8") as lines:
            texts = list(joined([line.strip() for line in lines], random))
        for place in random.permutation(len(texts))[:count]:
            first = _END.split(texts[place], maxsplit=1)[0]
            rows[texts[place]] = {"query": first, "positive": texts[place], "source": source}
    known = collect([text for folder in options.apart_from for text in texts_of(folder)])
    near = near_duplicates([row["positive"] for row in rows.values()], known)
    near |= near_duplicates([row["query"] for row in rows.values()], known)
    with gzip.open(options.out, "wt", encoding="utf-8") as out:
        for row, left_out in zip(rows.values(), near.tolist(), strict=True):
            if not left_out:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{len(rows) - near.sum():,} documents, {near.sum():,} near duplicates left out")


if __name__ == "__main__":
    main()
