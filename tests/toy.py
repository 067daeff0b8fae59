"""A toy corpus for two-stage training: each document has a topic and words of its own."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hplus import checkpoint
from hplus.teach.groups import Bad, Group
from hplus.types import Span
from tiny import WORDS, write_tiny

NAMES = [word for word in WORDS.split() if len(word) > 4]


def encoder(folder: Path, **options: Any) -> Path:
    """A tiny random BERT of three layers."""
    return write_tiny(folder, **{"layers": 3, "dim": 32, **options})


def base(folder: Path) -> Any:
    """It as a checkpoint in torch, whose heads are to read layer 1."""
    loaded = checkpoint.load(folder, device="cpu")
    budget = replace(loaded.recipe.document_budget, count=4, policy="merge")
    recipe = replace(loaded.recipe, layer=1, document_budget=budget, window=32)
    return replace(loaded, recipe=recipe)


def data(rows: list[Group], made: Any, config: Any, place: Path) -> Any:
    """Groups as training reads them, in a new folder of `place`."""
    from hplus.train.data_files import open_data, write_data

    folder = Path(tempfile.mkdtemp(dir=place)) / "data"
    write_data(folder, rows, [], made.backbone, made.recipe, config, Bad())
    return open_data(folder, made.backbone, made.recipe, config)


def groups(count: int = 24, seed: int = 0) -> list[Group]:
    """A query has two words of its positive; the negatives share one of them."""
    random = np.random.default_rng(seed)
    made = []
    fill = ["the", "of", "in", "and", "with"]
    for _ in range(count):
        pair = random.choice(NAMES, 2, replace=False).tolist()
        others = [name for name in NAMES if name not in pair]
        texts = [
            " ".join(random.permutation([*own, *random.choice(fill, 4)]).tolist())
            for own in (pair, *([pair[i % 2], str(random.choice(others))] for i in range(3)))
        ]
        query = " ".join(pair)
        units = (Span(0, len(pair[0])), Span(len(pair[0]) + 1, len(query)))
        made.append(Group("toy", query, tuple(texts), (4.0, 1.0, 0.0, -1.0), units))
    return made
