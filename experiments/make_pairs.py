"""The pairs that hplus-small v2 learns from, and a dev set of citation sentences beside them.

    python experiments/make_pairs.py ../shared/data/pairs WORK

WORK/pairs/*.jsonl.gz: of the files that may be shipped, most from eLife, where one abstract has
several queries (citation sentences, title, impact statement, sentences of the digest).
WORK/citance-dev: a BEIR folder of abstracts that no pair has, each asked for by one citation
sentence. It is the nearest thing to SciFact's claims that may be used to choose by.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from random import Random

ABSTRACTS, QUERIES, DEV_QUERIES, SEED = 4_000, 6_000, 400, 13
OTHERS = {
    "elife_heading_paragraph": 2_000,
    "elife_to_digest": 1_000,
    "openstax": 2_500,
    "ontology_definitions": 1_500,
    "acl_title_abstract": 1_200,
    "wikipathways": 700,
    "squad_dev": 3_000,
    "medquad": 3_000,
}

Pair = dict[str, str]


def read(file: Path) -> list[Pair]:
    """The pairs of a file, in its order."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [
            {name: row[name] for name in ("query", "positive")} for row in map(json.loads, lines)
        ]


def write(file: Path, rows: list[dict[str, str]]) -> None:
    """One JSON object a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


def choose(data: Path, random: Random) -> dict[str, list[Pair]]:
    """Pairs by the name of their file."""
    citances = read(data / "elife_citance_abstract.jsonl.gz")
    abstracts = sorted({pair["positive"] for pair in citances})
    kept = set(random.sample(abstracts, ABSTRACTS))
    queries = [p for p in read(data / "elife_to_abstract.jsonl.gz") if p["positive"] in kept]
    chosen = {
        "elife_citance_abstract": [pair for pair in citances if pair["positive"] in kept],
        "elife_to_abstract": random.sample(queries, QUERIES),
    }
    for name, count in OTHERS.items():
        chosen[name] = random.sample(read(data / f"{name}.jsonl.gz"), count)
    return chosen


def dev_set(data: Path, chosen: dict[str, list[Pair]], random: Random, out: Path) -> int:
    """Write the abstracts that are left, and a citation sentence for some; how many there are."""
    taken = {pair["positive"] for pairs in chosen.values() for pair in pairs}
    rest = [p for p in read(data / "elife_citance_abstract.jsonl.gz") if p["positive"] not in taken]
    number = {text: f"e{i}" for i, text in enumerate(sorted({p["positive"] for p in rest}))}
    random.shuffle(rest)
    asked = list({pair["positive"]: pair for pair in rest}.values())[:DEV_QUERIES]
    write(
        out / "corpus.jsonl.gz",
        [{"_id": own, "title": "", "text": text} for text, own in number.items()],
    )
    write(
        out / "queries.jsonl.gz",
        [{"_id": f"q{i}", "text": pair["query"]} for i, pair in enumerate(asked)],
    )
    judged = [f"q{i}\t{number[pair['positive']]}\t1\n" for i, pair in enumerate(asked)]
    (out / "qrels").mkdir(exist_ok=True)
    (out / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return len(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    random = Random(SEED)
    chosen = choose(options.data, random)
    for name, pairs in chosen.items():
        write(options.out / "pairs" / f"{name}.jsonl.gz", list(pairs))
        print(f"{name}: {len(pairs):,} pairs, {len({p['positive'] for p in pairs}):,} documents")
    left = dev_set(options.data, chosen, random, options.out / "citance-dev")
    print(f"citance-dev: {left:,} documents, {DEV_QUERIES} queries")


if __name__ == "__main__":
    main()
