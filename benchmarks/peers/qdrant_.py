"""Qdrant's engine in-process (qdrant-edge-py): MaxSim by dot products, weighted queries.

Variants: *scan* is a shard as it is once the points are in, *optimised* after `optimize()`, which
builds its graph. Cores are what the process is allowed to use.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from protocol import K, Search, documents, main, queries

POINTS = 256


def build(folder: Path, variant: str) -> None:
    import qdrant_edge as q

    index = folder / f"qdrant-{variant}"
    if index.exists():
        return
    index.mkdir()
    rows = documents(folder)
    maxsim = q.MultiVectorConfig(comparator=q.MultiVectorComparator.MaxSim)
    params = q.EdgeVectorParams(
        size=rows[0].shape[1], distance=q.Distance.Dot, multivector_config=maxsim
    )
    shard = q.EdgeShard.create(str(index), q.EdgeConfig(vectors=params))
    for first in range(0, len(rows), POINTS):
        points = [
            q.Point(first + i, some.tolist(), {})
            for i, some in enumerate(rows[first : first + POINTS])
        ]
        shard.update(q.UpdateOperation.upsert_points(points))
    if variant == "optimised":
        shard.optimize()
    shard.flush()
    shard.close()


def open_(folder: Path, variant: str, _cores: int) -> tuple[str, Search]:
    import qdrant_edge as q

    shard = q.EdgeShard.load(str(folder / f"qdrant-{variant}"))
    requests = [
        q.QueryRequest(limit=K, query=q.Query.Nearest(some.tolist()))
        for some in queries(folder, weighted=True)
    ]

    def search(step: int) -> list[list[int]]:
        return [[int(point.id) for point in shard.query(request)] for request in requests[::step]]

    return f"qdrant-edge-py {version('qdrant-edge-py')}, {variant}", search


if __name__ == "__main__":
    main(build, open_)
