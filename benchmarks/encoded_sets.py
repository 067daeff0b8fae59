"""A retrieval set as `Encoded` batches, made from cached token states: no text is encoded twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hplus import Budget, Encoded, HPlus
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.states_file import StoredStates
from hplus.types import Coverage
from hplus.units.select import spend
from hplus.views import global_

WIDTH = 128


@dataclass(frozen=True)
class EncodedSet:
    """A set with every unit of its documents and queries, 128 wide, under learned weights."""

    data: RetrievalSet
    documents: Encoded
    queries: Encoded
    fingerprint: str

    @property
    def tokens(self) -> int:
        """Tokens of the documents, cut at 256: what token vectors would store."""
        return int(self.documents.coverage.tokens.sum())


def encoded_set(folder: Path, cache: Path, split: str = "test", count: int = 0) -> EncodedSet:
    """A set in BEIR layout, texts cut at 256 tokens; count: how many of its documents."""
    model = HPlus(long="cut")
    data = read_beir(folder, split)
    bench = Bench(model, data, cache)
    documents, queries = (_encoded(bench, side) for side in (bench.documents, bench.queries))
    if count:
        documents = documents[:count]
    return EncodedSet(data, documents, queries, model.fingerprint)


def _encoded(bench: Bench, side: StoredStates) -> Encoded:
    model, offsets = bench.model, side.tokens.offsets
    importance = bench.importance(side, "head")
    units, dropped = spend(Budget(), bench.units(side, "crf", "head", WIDTH, Budget()))
    tokens = np.diff(offsets).astype(np.int32)
    sums = np.concatenate([[0], np.cumsum(importance, dtype=np.float64)])
    total = np.diff(sums[offsets]).astype(np.float32)
    return Encoded(
        global_=global_.represent(side.pooled, model.recipe.global_width or model.dim),
        units=units,
        lexical=bench.lexical_view(side, "head"),
        dropped=dropped,
        coverage=Coverage(tokens, np.ones_like(tokens), np.zeros_like(tokens), total, total),
    )
