"""Documents and queries of retrieval sets as they are indexed, made from cached token states.

    python benchmarks/real_units.py ../shared/data/eval --cache /tmp/states scifact nfcorpus

Documents have 32 units, merged, of width 128; texts are cut at 256 tokens. What is in the cache is
not encoded again, and an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from encoded_sets import WIDTH, encoded_set
from hplus import Budget, Encoded

BUDGET = Budget(32, policy="merge")

__all__ = ["BUDGET", "WIDTH", "real_units"]


def real_units(folder: Path, cache: Path) -> tuple[Encoded, Encoded]:
    """The documents of a set in BEIR layout and its test queries, in the order of the files."""
    found = encoded_set(folder, cache)
    return found.documents.at(budget=BUDGET), found.queries


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
