"""fast-plaid with its defaults; variants weighted and plain. All queries go in one call.

A wheel is tied to one release of torch. 1.7.0.270 runs on torch 2.6.0 of Debian trixie, the newest
without CUDA that a package mirror has: python3-torch and libopenblas0-pthread with what they need,
unpacked into a folder (apt-get install --download-only, dpkg-deb -x), are started there through
their own ld.so; the wheel goes beside them (pip install --target, --no-deps), its copy of libc10
replaced by a link to that of torch. (1.1.0, which pins no torch, and 1.7.0.2110 crash in `create`
under torch 2.13.)
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from protocol import K, Search, documents, main, queries


def build(folder: Path, _variant: str) -> None:
    import torch

    index = folder / "fast-plaid"
    if not index.exists():
        _engine(index).create([torch.from_numpy(v.copy()) for v in documents(folder)])


def open_(folder: Path, variant: str, cores: int) -> tuple[str, Search]:
    import torch

    engine = _engine(folder / "fast-plaid")
    rows = [torch.from_numpy(v) for v in queries(folder, weighted=variant == "weighted")]

    def search(step: int) -> list[list[int]]:
        processes = 1 if cores == 1 else None  # None: one thread per core, the default
        found = engine.search(rows[::step], top_k=K, show_progress=False, n_processes=processes)
        return [[row for row, _ in hits] for hits in found]

    return f"fast-plaid {version('fast-plaid')}, {variant} queries", search


def _engine(index: Path) -> Any:
    from fast_plaid.search import FastPlaid

    return FastPlaid(str(index), device="cpu")


if __name__ == "__main__":
    main(build, open_)
