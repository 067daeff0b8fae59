"""A small corpus to encode in shards, what is in their folder, and what is in an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from brute_force import QuickDisk
from hplus import HPlus, Index

ROWS: list[dict[str, Any]] = [
    {"_id": f"d{i}", "text": f"type {i} diabetes of patient {i * 7919}; " * (1 + i % 3), "year": i}
    for i in range(23)
]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def shard_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def index_bytes(index: Index) -> dict[str, bytes]:
    """Every segment, and every row of the catalogue."""
    found = {file.name: file.read_bytes() for file in (index.path / "segments").iterdir()}
    dump = index.engine.snapshot.connection.iterdump()
    return found | {"catalogue": "\n".join(dump).encode()}


def new_index(path: Path, model: HPlus, **options: Any) -> Index:
    return Index.create(path, model, disk=QuickDisk(), **options)
