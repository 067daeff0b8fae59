"""How far a teacher is ahead of its student, before a long run: nDCG@10 on dev pools.

    python experiments/teachers.py ../shared/data/eval --cache CACHE \
        tokens:small tokens:small,0.5*global:small tokens:small,0.3*bm25

Teachers as `hplus teach scores` spells them, those of an ensemble divided by commas; the first is
what the others are compared with. Pools as training validates on: 150 queries of each dev set, up
to 600 documents with all relevant ones. `--set FOLDER:SPLIT` adds a dev set of one's own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hplus.evaluate.data import read_beir
from hplus.evaluate.statistics import paired_difference
from hplus.teach.scorers import Teacher, teach_scores
from hplus.train.validation import ndcg10, small_pool
from hplus.types import F64

SETS = ("nfcorpus:dev", "feedbackqa:dev", "medicalqa-dev:dev")
QUERIES, DOCUMENTS = 150, 600


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("teachers", nargs="+")
    parser.add_argument("--set", action="append", default=[], metavar="FOLDER:SPLIT")
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    found: dict[str, dict[str, F64]] = {}
    for name in (*(f"{options.data / own}" for own in SETS), *options.set):
        folder, _, split = name.rpartition(":")
        pool = small_pool(read_beir(Path(folder), split), QUERIES, DOCUMENTS)
        groups = [np.arange(len(pool.documents))] * len(pool.queries)
        for spelled in options.teachers:
            teachers = [Teacher.parse(one) for one in spelled.split(",")]
            scores = teach_scores(teachers, pool.queries, pool.documents, groups, options.cache)
            values = ndcg10(pool, np.stack(scores).astype(np.float32))
            found.setdefault(spelled, {})[name] = values
    first = found[options.teachers[0]]
    for spelled, by_set in found.items():
        means = [100 * float(own.mean()) for own in by_set.values()]
        d = paired_difference(by_set, first)
        print(
            f"{spelled}:",
            *(f"{mean:.2f}" for mean in means),
            f"macro {np.mean(means):.2f},",
            f"{100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]",
        )


if __name__ == "__main__":
    main()
