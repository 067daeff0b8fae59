"""Do queries gain more from phrases where the CRF segments them as its teacher would?

Writes, for the queries of a cell, the teacher's units as a corpus of marked spans and the gains of
Phrase over Token by text, for `hplus-lab audit`. The reference is silver: no person marked it.

    python experiments/query_audit.py CELL.json scifact --terms terms.txt --cache states --out DIR
    hplus-lab audit DIR/*.jsonl --gains DIR/gains.json

Run it once for each set: the gains of all of them are collected in DIR/gains.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hplus import HPlus
from hplus.evaluate.data import read_beir
from hplus.teach.corpus import label_file
from hplus.units.terms import Terms
from hplus_lab.audit.gains import read_gains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cell", type=Path, help="a cell of broad-deployed")
    parser.add_argument("set", type=Path, help="the BEIR folder of that cell")
    parser.add_argument("--split", default="test")
    parser.add_argument("--terms", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    gains = read_gains(options.cell)
    data = read_beir(options.set, options.split)
    texts = dict(zip(data.query_ids, data.queries, strict=True))
    marked = options.out / f"{options.set.name}.jsonl"
    with marked.open("w", encoding="utf-8") as file:
        for text in texts.values():
            file.write(json.dumps({"text": text}) + "\n")
    labelled = label_file(
        marked,
        terms=Terms.read(options.terms),
        chunker=HPlus("chunker", long="cut"),
        length="noun-phrase",
        apart_from=None,
        cache=options.cache,
    )
    with marked.open("w", encoding="utf-8") as file:
        for item in labelled.labels:
            spans = [[*span, "NP"] for span in item.units]
            file.write(json.dumps({"text": item.text, "spans": spans}) + "\n")
    collected = options.out / "gains.json"
    by_text = json.loads(collected.read_text()) if collected.exists() else {}
    by_text |= {texts[query]: gain for query, gain in gains.items()}
    collected.write_text(json.dumps(by_text))


if __name__ == "__main__":
    main()
