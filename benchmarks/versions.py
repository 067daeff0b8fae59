"""One index searched by two versions of hplus in turn: CPU time per query on one core, and whether
the ten best documents of a query are those of the first version but for ties.

    python benchmarks/versions.py INDEX QUERIES.safetensors before=PYTHON after=PYTHON \
        --out docs/results/versions.jsonl

INDEX: an index that both versions open; QUERIES: encoded queries (`write_encoded`); PYTHON: the
interpreter of an environment with that version, its kernel chosen by NAME:KERNEL=PYTHON, as in
after:AVX2=PYTHON. Each version has its own process per round, and the rounds take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROUNDS = 3
SEARCH = """
import json, sys, time
from hplus import Index
from hplus.encoded_file import read_encoded

index = Index.open(sys.argv[1])
encoded, _ = read_encoded(sys.argv[2])
queries = [encoded[i] for i in range(len(encoded))]
times, found = {}, {}
for view in ("hybrid", "phrase", "global", "lexical"):
    for query in queries[:20]:
        index.search(query, view=view)
    start = time.process_time()
    for query in queries:
        index.search(query, view=view)
    times[view] = 1000 * (time.process_time() - start) / len(queries)
    found[view] = [[(hit.id, hit.score) for hit in index.search(q, view=view)] for q in queries]
told = {"budget": str(index.settings.budget), "queries": len(queries), "ms": times}
print(json.dumps(told | {"found": found}))
"""
# Of a score: those that differ by less are ties, since kernels round in the sixth digit.
TIE = 2e-5
Hits = list[tuple[str, float]]


def alike(own: Hits, other: Hits) -> bool:
    """Whether two versions give the same best documents and scores, up to what ties."""
    if len(own) != len(other):
        return False
    near = TIE * max((abs(score) for _, score in own), default=0)
    if any(abs(a - b) > near for (_, a), (_, b) in zip(own, other, strict=True)):
        return False
    left, right = dict(own), dict(other)
    last = min(left.values(), default=0)
    return all(
        abs(score - (right if id_ in left else left).get(id_, last)) <= near
        for id_, score in [*own, *other]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("versions", nargs="+", metavar="NAME[:KERNEL]=PYTHON")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    versions = [version.partition("=")[::2] for version in options.versions]
    best: dict[tuple[str, str], dict[str, object]] = {}
    first: dict[str, list[Hits]] = {}
    for _ in range(ROUNDS):
        for name, python in versions:
            kernel = name.partition(":")[2]
            done = subprocess.run(
                [python, "-c", SEARCH, options.index, options.queries],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "HPLUS_KERNELS": kernel},
                capture_output=True,
                check=True,
            )
            found = json.loads(done.stdout)
            for view, taken in found["ms"].items():
                row = {"version": name, "view": view, "ms": round(taken, 2)}
                row |= {"budget": found["budget"], "queries": found["queries"], "rounds": ROUNDS}
                hits = found["found"][view]
                pairs = zip(hits, first.setdefault(view, hits), strict=True)
                row |= {"index": options.index.name, "alike": sum(alike(*pair) for pair in pairs)}
                known = best.setdefault((name, view), row)
                best[name, view] = min(known, row, key=lambda own: float(str(own["ms"])))
    with options.out.open("a", encoding="utf-8") as out:
        for row in best.values():
            print(json.dumps(row), file=out)
            print(row, file=sys.stderr)


if __name__ == "__main__":
    main()
