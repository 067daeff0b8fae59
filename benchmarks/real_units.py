"""Documents and queries of retrieval sets as `Encoded` files, made once and kept.

    python benchmarks/real_units.py ../shared/data/eval --cache /tmp/units scifact nfcorpus

Documents have 32 units, merged, of width 128; texts are cut at 256 tokens. What is in the cache is
not encoded again, and an interrupted run goes on after its last 500 documents.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hplus import Budget, Encoded, HPlus
from hplus.encoded_file import read_encoded, write_encoded
from hplus.evaluate.data import read_beir
from hplus.types import concatenate

BUDGET, WIDTH = Budget(32, policy="merge"), 128
PART = 500


def real_units(folder: Path, cache: Path) -> tuple[Encoded, Encoded]:
    """The documents of a set in BEIR layout and its test queries, in the order of the files."""
    data, model = read_beir(folder), HPlus(long="cut")
    cache.mkdir(parents=True, exist_ok=True)

    def kept(name: str, texts: list[str], *, queries: bool) -> Encoded:
        path = cache / f"{folder.name}-{name}.safetensors"
        if not path.exists():
            if queries:
                made = model.encode_query(texts, width=WIDTH)
            else:
                made = model.encode_document(texts, budget=BUDGET, width=WIDTH)
            write_encoded(path, made, fingerprint=model.fingerprint)
            print(path.name, len(made), flush=True)
        return read_encoded(path)[0]

    queries = kept("queries", data.queries, queries=True)
    parts = [
        kept(f"{first:06d}", data.documents[first : first + PART], queries=False)
        for first in range(0, len(data.documents), PART)
    ]
    return concatenate(parts), queries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    for name in options.sets:
        real_units(options.data / name, options.cache)


if __name__ == "__main__":
    main()
