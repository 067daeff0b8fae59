"""Quality against bytes per document: which budget, width and format to index with.

Everything is computed from cached token states, so the whole curve costs one encoding. Units are
merged at full width and then narrowed, as `Index.compact` does. Every setting is compared with
token pooling: the document's tokens clustered to as many vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.storage.segment import FORMATS, Format, bytes_of, dequantise, quantise
from hplus.types import F64, Units
from hplus.units.select import Budget, Joins, bring_to, narrow
from hplus.views.fusion import fuse

BUDGETS = (4, 8, 16, 32, 64, 128)
WIDTHS = (64, 128, 256)
# Points of nDCG@10 by which the recommended setting may trail the best one.
SLACK = 1.0


@dataclass(frozen=True)
class Setting:
    """One way to index, the bytes of a document's unit vectors, nDCG@10 of every query."""

    budget: int | None
    width: int
    format: Format
    vectors: float
    bytes: float
    phrase: F64
    hybrid: F64
    pooled: F64
    """Token pooling: as many vectors of clustered tokens, every query token counting once."""
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
    sides = (bench.queries, bench.documents)
    (queries, documents), (tokens, every) = (
        [bench.units(side, units, kind, dim, Budget()) for side in sides]
        for units, kind in ((recipe.units, recipe.importance), ("tokens", "uniform"))
    )
    own = {"global": bench.global_, "lexical": bench.lexical(recipe.importance)}
    views = {name: bench.pooled(scores) for name, scores in own.items()}
    joins: tuple[Joins, Joins] = ({}, {})
    for count in (*budgets, None):
        wanted = np.diff(documents.offsets)
        wanted = wanted if count is None else np.minimum(wanted, count)
        kept = bring_to(wanted, "merge", documents, joins[0])
        clusters = bring_to(wanted, "ward", every, joins[1])
        vectors = len(kept.weights) / max(1, len(bench.ids))
        for width in sorted({*(w for w in WIDTHS if w < dim), dim}):
            for format in formats:
                if format == "int4" and width % 2:  # two numbers of it share a byte
                    continue
                views["phrase"] = _scores(bench, queries, kept, width, format)
                fused = fuse({name: views[name] for name in recipe.fusion}, recipe.fusion)
                yield Setting(
                    count,
                    width,
                    format,
                    vectors,
                    bytes_of(vectors, width, format),
                    bench.ndcg10(views["phrase"]),
                    bench.ndcg10(fused),
                    bench.ndcg10(_scores(bench, tokens, clusters, width, format)),
                )
                advance(1)


def efficient(found: Sequence[Setting]) -> list[Setting]:
    """In order of bytes, those marked whose hybrid nDCG@10 no smaller setting reaches."""
    ordered = sorted(found, key=lambda s: (s.bytes, -s.hybrid.mean()))
    marked, best = [], -np.inf
    for setting in ordered:
        mean = float(setting.hybrid.mean())
        marked.append(replace(setting, efficient=mean > best))
        best = max(best, mean)
    return marked


def recommend(found: Sequence[Setting]) -> Setting:
    """The smallest setting with a budget that is within a point of the best one."""
    best = best_of(found).hybrid.mean()
    near = [s for s in found if s.budget and 100 * (best - s.hybrid.mean()) <= SLACK]
    return min(near, key=lambda setting: setting.bytes)


def best_of(found: Sequence[Setting]) -> Setting:
    """The setting with a budget whose hybrid has the highest mean."""
    return max((s for s in found if s.budget), key=lambda setting: float(setting.hybrid.mean()))


def _scores(bench: Bench, queries: Units, documents: Units, width: int, format: Format) -> F64:
    """S_P of each query's pool, with the documents' vectors as a format stores them."""
    queries, stored = narrow(queries, width), narrow(documents, width)
    mean = bench.model.checkpoint.mean
    if mean is not None:
        mean = mean[:width]
    codes, scales = quantise(stored.vectors, format, mean)
    stored = replace(stored, vectors=dequantise(codes, scales, mean))
    threads = bench.model.threads
    return bench.pooled(rescore.maxsim_of_pools(queries, stored, bench.pools, threads=threads))
