"""What hplus-zh is trained on and chosen with, from open data:

    python experiments/make_zh_data.py ../shared/data WORK

    drcd.jsonl.gz       DRCD's questions and paragraphs in simplified characters (pairs)
    sentences.jsonl.gz  a sentence of each paragraph, in both scripts, and what is left of the
                        paragraph without it (pairs)
    texts.txt           its paragraphs, one a line
    lines.txt           some of its sentences; in every second one a third of the nouns is replaced
                        by medical terms of THUOCL, every second term after a verb or particle:
                        an encyclopaedia alone has too few of them
    dev.txt             other sentences, made the same way
    idf.txt             the paragraphs of both in the characters they were written in, and DRCD's in
                        simplified ones
    wiki-zh/            a dev set in BEIR layout: questions of CMRC 2018's trial part, its
                        paragraphs among 700 of DRCD's

Needs opencc-python-reimplemented (Apache-2.0) and rjieba.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import rjieba
from opencc import OpenCC

SEED = 13
LINES = 5_000
DEV_LINES = 500
DISTRACTORS = 700
_SENTENCE = re.compile(r"[^。！？]{12,80}[。！？]")
# A paragraph of fewer sentences says too little without one of them.
LEAST_SENTENCES = 4
# What patients and doctors put before a name: without it the CRF takes it for part of the name.
_BEFORE = "患得有无做查治用服吃切或和及为因是对去请"
_NOUNS = ("n", "nz", "ns", "nr", "nt", "vn")


def pairs(path: Path) -> list[tuple[str, str]]:
    """Questions and paragraphs of a file of pairs."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [(row["query"], row["positive"]) for row in rows]


def with_terms(sentence: str, terms: list[str], chance: random.Random) -> str:
    """The sentence with some of its nouns replaced by terms, some of these after a verb."""
    return "".join(
        chance.choice(("", chance.choice(_BEFORE))) + chance.choice(terms)
        if kind in _NOUNS and len(word) > 1 and chance.random() < 1 / 3
        else word
        for word, kind in rjieba.tag(sentence)
    )


def sentence_pairs(paragraphs: Iterable[str], chance: random.Random) -> Iterator[dict[str, str]]:
    """A sentence as a query for the rest of its paragraph: pairs of texts nobody asked about."""
    for text in paragraphs:
        sentences = [own.strip() for own in re.findall(r"[^。！？]{12,60}[。！？]", text)]
        if len(sentences) >= LEAST_SENTENCES:
            asked = chance.choice(sentences)
            yield {"query": asked.rstrip("。！？"), "positive": text.replace(asked, "", 1)}


def write_dev(folder: Path, asked: list[tuple[str, str]], others: list[str]) -> None:
    """A BEIR folder: every question has its own paragraph."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    own = sorted({paragraph for _, paragraph in asked})
    ids = {text: f"p{number}" for number, text in enumerate(own + others)}
    corpus = [{"_id": key, "title": "", "text": text} for text, key in ids.items()]
    queries = [{"_id": f"q{n}", "text": question} for n, (question, _) in enumerate(asked)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    judged = [f"q{n}\t{ids[paragraph]}\t1\n" for n, (_, paragraph) in enumerate(asked)]
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(judged)
    (folder / "qrels" / "dev.tsv").write_text(qrels, "utf-8")


def main(data: Path, work: Path) -> None:
    """Write all of it."""
    work.mkdir(parents=True, exist_ok=True)
    simplified = OpenCC("t2s").convert
    traditional = pairs(data / "pairs" / "zh_drcd.jsonl.gz")
    paragraphs = {text: simplified(text) for text in sorted({text for _, text in traditional})}
    with gzip.open(work / "drcd.jsonl.gz", "wt", encoding="utf-8") as out:
        for question, paragraph in traditional:
            row = {"query": simplified(question), "positive": paragraphs[paragraph]}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    both = [*paragraphs.values(), *paragraphs]
    with gzip.open(work / "sentences.jsonl.gz", "wt", encoding="utf-8") as out:
        for pair in sentence_pairs(both, random.Random(SEED)):
            out.write(json.dumps(pair, ensure_ascii=False) + "\n")
    texts = [" ".join(text.split()) for text in paragraphs.values()]
    (work / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")

    chance = random.Random(SEED)
    listed = data / "terms" / "zh_thuocl_medical.txt.gz"
    terms = gzip.open(listed, "rt", encoding="utf-8").read().split()  # noqa: SIM115
    sentences = [found for text in texts for found in _SENTENCE.findall(text)]
    lines = [
        with_terms(own, terms, chance) if number % 2 else own
        for number, own in enumerate(chance.sample(sentences, LINES + DEV_LINES))
    ]
    (work / "lines.txt").write_text("\n".join(lines[:LINES]) + "\n", "utf-8")
    (work / "dev.txt").write_text("\n".join(lines[LINES:]) + "\n", "utf-8")

    others = random.Random(SEED).sample(list(paragraphs.values()), DISTRACTORS)
    asked = pairs(data / "pairs" / "zh_cmrc2018.jsonl.gz")
    write_dev(work / "wiki-zh", asked, others)
    counted = {" ".join(text.split()) for text in (*paragraphs, *(text for _, text in asked))}
    (work / "idf.txt").write_text("\n".join(sorted({*counted, *texts})) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
