"""Quality against bytes a document: which budget, width and format to index with.

Everything is pooled from cached token states, so that the whole curve costs one encoding. Units
are merged at full width and cut to their first columns afterwards, as `Index.compact` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hplus.evaluate import rescore
from hplus.evaluate.beir import Bench
from hplus.evaluate.cost import bytes_of
from hplus.index.segment import FORMATS, Format, dequantise, quantise
from hplus.types import F64, I64
from hplus.units.pool import normalise
from hplus.units.select import Budget, Kept, spend
from hplus.views.fusion import fuse

BUDGETS = (4, 8, 16, 32, 64, 128)
WIDTHS = (64, 128, 256)
# Points of nDCG@10 that the recommended setting may lie behind the best one.
SLACK = 1.0


@dataclass(frozen=True)
class Setting:
    """One way to index, what a document's unit vectors weigh, nDCG@10 of every query."""

    budget: int | None
    width: int
    format: Format
    vectors: float
    bytes: float
    phrase: F64
    hybrid: F64
    efficient: bool = False

    def __str__(self) -> str:
        kept = "all units" if self.budget is None else f"{self.budget} units"
        return f"{kept} of width {self.width}, {self.format}"


def settings(
    bench: Bench,
    budgets: Sequence[int] = BUDGETS,
    formats: Sequence[Format] = FORMATS,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Setting]:
    """Every budget, width and format on one set."""
    recipe, dim = bench.model.recipe, bench.model.dim
    kinds = (recipe.units, recipe.importance, dim, Budget())
    queries, documents = (bench.units(side, *kinds) for side in (bench.queries, bench.documents))
    views = {"global": bench.global_, "lexical": bench.lexical(recipe.importance)}
    joins: dict[int, I64] = {}
    for count in (*budgets, None):
        kept = documents
        if count is not None:
            budget = Budget(count, policy="merge")
            kept = spend(
                budget,
                documents.vectors,
                documents.weights,
                documents.spans,
                documents.offsets,
                joins,
            )
        for width in sorted({*(w for w in WIDTHS if w < dim), dim}):
            asked, narrow = _at(queries, width), _at(kept, width)
            vectors = len(kept.weights) / max(1, len(bench.ids))
            for format in formats:
                stored = replace(narrow, vectors=dequantise(*quantise(narrow.vectors, format)))
                scores = rescore.maxsim(asked, stored)
                pooled = {"phrase": bench.pooled(scores)}
                pooled |= {name: bench.pooled(own) for name, own in views.items()}
                fused = fuse({name: pooled[name] for name in recipe.fusion}, recipe.fusion)
                yield Setting(
                    count,
                    width,
                    format,
                    vectors,
                    bytes_of(vectors, width, format),
                    bench.ndcg10(pooled["phrase"]),
                    bench.ndcg10(fused),
                )
                advance(1)


def efficient(found: Sequence[Setting]) -> list[Setting]:
    """In order of bytes; marked are those that no smaller one equals in nDCG@10 of the hybrid."""
    ordered = sorted(found, key=lambda s: (s.bytes, -s.hybrid.mean()))
    marked, best = [], -np.inf
    for setting in ordered:
        mean = float(setting.hybrid.mean())
        marked.append(replace(setting, efficient=mean > best))
        best = max(best, mean)
    return marked


def recommend(found: Sequence[Setting]) -> Setting:
    """The smallest setting within a point of the best."""
    best = max(setting.hybrid.mean() for setting in found)
    near = [s for s in found if 100 * (best - s.hybrid.mean()) <= SLACK]
    return min(near, key=lambda setting: setting.bytes)


def _at(kept: Kept, width: int) -> Kept:
    return replace(kept, vectors=normalise(kept.vectors[:, :width]))
