"""Ours: `Index.search` with the phrase view, int8 or f32; search.py makes the indexes.

Variants: *int8* and *f32* get one query after another, *int8 together* all of them in one call,
*int8 hybrid* searches by all three views, and *int8 scan alone* is the compiled scan without the
search around it: what a query takes beyond that is what Python adds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from protocol import K, Search, main

if TYPE_CHECKING:
    from hplus import Encoded, Index


def build(_folder: Path, _variant: str) -> None:
    """Made by search.py, which has the whole encodings."""


def open_(folder: Path, variant: str, cores: int) -> tuple[str, Search]:
    import hplus
    from hplus.encoded_file import read_encoded

    format, _, way = variant.partition(" ")
    index = hplus.Index.open(folder / f"hplus-{format}")
    view = "hybrid" if way == "hybrid" else "phrase"
    encoded, _ = read_encoded(folder / "queries.safetensors")
    queries = [encoded[i] for i in range(len(encoded))]
    name = f"hplus {hplus.__version__}, {variant}"
    if way == "scan alone":
        return name, scan_alone(index, queries, cores)

    def search(step: int) -> list[list[int]]:
        asked = queries[::step]
        if way == "together":
            found = index.search(asked, view=view, k=K, threads=cores)
        else:
            found = [index.search(query, view=view, k=K, threads=cores) for query in asked]
        return [[int(hit.metadata["row"]) for hit in hits] for hits in found]

    return name, search


def scan_alone(index: Index, queries: list[Encoded], cores: int) -> Search:
    """The call of the kernel that a search by the phrase view makes."""
    import numpy as np

    from hplus.kernels import Wanted, best_documents
    from hplus.search.local import phrase_rows

    (part,) = index.engine.snapshot.parts
    segment, width = part.segment, queries[0].units.width
    rows = phrase_rows(segment, width, np.arange(len(segment)), None)
    longest = segment.longest("phrase", width)

    def search(step: int) -> list[list[int]]:
        found = []
        for query in queries[::step]:
            wanted = Wanted(query.units.vectors, query.units.weights, K)
            ((places, scores),) = best_documents([wanted], *rows, longest=longest, threads=cores)
            found.append(places[np.argsort(-scores, kind="stable")[:K]].tolist())
        return found

    return search


if __name__ == "__main__":
    main(build, open_)
