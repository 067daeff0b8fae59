"""Ours: `Index.search` with the phrase view; variants int8 and f32. search.py makes the indexes."""

from __future__ import annotations

from pathlib import Path

from protocol import K, Search, main


def build(_folder: Path, _variant: str) -> None:
    """Made by search.py, which has the whole encodings."""


def open_(folder: Path, variant: str, cores: int) -> tuple[str, Search]:
    import hplus
    from hplus.encoded_file import read_encoded

    index = hplus.Index.open(folder / f"hplus-{variant}")
    encoded, _ = read_encoded(folder / "queries.safetensors")
    queries = [encoded[i] for i in range(len(encoded))]

    def search(step: int) -> list[list[int]]:
        found = [
            index.search(query, view="phrase", k=K, threads=cores) for query in queries[::step]
        ]
        return [[int(hit.metadata["row"]) for hit in hits] for hits in found]

    return f"hplus {hplus.__version__}, {variant}", search


if __name__ == "__main__":
    main(build, open_)
