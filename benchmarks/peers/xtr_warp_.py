"""xtr-warp-rs with its defaults; variants weighted and plain. All queries go in one call.

It prunes centroids by a threshold on cosines, and weighted query vectors, which are not of unit
length, are not what it was tuned for; *plain* gives it unit vectors.

2.1.0.2110 runs in an environment of its own with the torch that it wants: `pip install
xtr-warp-rs==2.1.0.2110` brings torch 2.11 with CUDA's libraries (5 GB), of which nothing is used
here. The recorded runs of 2.1.0.270 were on torch 2.6.0 of Debian trixie (see fast_plaid_.py), with
a libc10_cuda.so in which the CUDA functions that it refers to abort.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from protocol import K, Search, documents, main, queries


def build(folder: Path, _variant: str) -> None:
    import torch

    index = folder / "xtr-warp"
    if not index.exists():
        rows = [torch.from_numpy(v.copy()) for v in documents(folder)]
        _engine(index).create(rows, device="cpu", show_progress=False)


def open_(folder: Path, variant: str, cores: int) -> tuple[str, Search]:
    import torch

    engine = _engine(folder / "xtr-warp").load(device="cpu")
    rows = [torch.from_numpy(v) for v in queries(folder, weighted=variant == "weighted")]

    def search(step: int) -> list[list[int]]:
        found = engine.search(rows[::step], top_k=K, num_threads=cores, show_progress=False)
        return [[row for row, _ in hits] for hits in found]

    return f"xtr-warp-rs {version('xtr-warp-rs')}, {variant} queries", search


def _engine(index: Path) -> Any:
    from xtr_warp.search import XTRWarp

    return XTRWarp(str(index))


if __name__ == "__main__":
    main(build, open_)
