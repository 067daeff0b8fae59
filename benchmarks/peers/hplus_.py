"""Ours: `Index.search` with the phrase view, int8 or f32; search.py makes the indexes.

Variants: *int8* and *f32* get one query after another, *int8 together* all of them in one call, and
*int8 hybrid* searches by all three views.
"""

from __future__ import annotations

from pathlib import Path

from protocol import K, Search, main


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

    def search(step: int) -> list[list[int]]:
        asked = queries[::step]
        if way == "together":
            found = index.search(asked, view=view, k=K, threads=cores)
        else:
            found = [index.search(query, view=view, k=K, threads=cores) for query in asked]
        return [[int(hit.metadata["row"]) for hit in hits] for hits in found]

    return f"hplus {hplus.__version__}, {variant}", search


if __name__ == "__main__":
    main(build, open_)
