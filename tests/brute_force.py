"""What a search should find, by brute force over the encodings themselves.

The oracle of all index tests: `fusion.score` over what was given to the index, ranked by score,
ties by id; and, for what a stored format rounds, a bound that follows from the format alone.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from builders import random_encoded, random_vectors, text_of_words
from hplus.any_index import settings_for
from hplus.index import Index
from hplus.search.searcher import Results
from hplus.storage.create import create
from hplus.storage.disk import Disk
from hplus.storage.segment import FORMATS, LARGEST, Format, global_format
from hplus.storage.spread import spread
from hplus.types import F32, F64, Encoded, item_of_row
from hplus.views import fusion, lexical

ALPHAS = {"global": 0.5, "phrase": 1.0, "lexical": 0.2}
# Sums of float32 products of unit vectors of up to some dozen numbers.
ROUNDING = 2e-6
TEXT = text_of_words(200)


class QuickDisk(Disk):
    """Does not wait for the disk: durability is tested elsewhere."""

    def sync(self, path: Path) -> None:
        pass

    def connect(self, path: Path, *, write: bool) -> sqlite3.Connection:
        connection = super().connect(path, write=write)
        connection.execute("PRAGMA synchronous = OFF")
        return connection


@dataclass(frozen=True)
class Corpus:
    """A query and documents; documents i and j are equal where copies[i] == copies[j].

    Segments end at the cuts. Document i has the metadata {"n": i}. mean: taken off the vectors of
    the units before an index of int8 rounds them.
    """

    query: Encoded
    documents: Encoded
    ids: list[str]
    copies: list[int]
    cuts: list[int]
    format: Format
    mean: F32 | None = None

    def widths(self) -> st.SearchStrategy[int]:
        """At which an index can be searched: int4 has no prefixes."""
        whole = self.documents.units.width
        return st.integers(whole if self.format == "int4" else 1, whole)

    def __len__(self) -> int:
        return len(self.ids)


@st.composite
def corpora(
    draw: st.DrawFn,
    *,
    formats: Sequence[Format] = FORMATS,
    documents: int = 12,
    merged: bool | None = None,
) -> Corpus:
    """Ragged documents, some without units or lexical tokens, some twice; ids in no order."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width, global_width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=documents))
    some = random_encoded(
        random,
        lengths,
        width,
        dropped=[length // 2 for length in lengths],
        merged=draw(st.booleans()) if merged is None else merged,
    )
    query = random_encoded(random, [draw(st.integers(0, 5))], width)
    copies = draw(
        st.lists(st.integers(0, len(lengths) - 1), min_size=len(lengths), max_size=documents)
    )
    n = len(copies)
    some = replace(some, global_=random_vectors(random, len(some), global_width))
    if width % 2:  # two numbers of int4 share a byte
        formats = [format for format in formats if format != "int4"]
    format = draw(st.sampled_from(formats))
    mean = None
    if format in LARGEST and draw(st.booleans()):
        mean = random_vectors(random, 1, width)[0] * np.float32(draw(st.sampled_from([0.1, 0.8])))
    return Corpus(
        query=replace(query, global_=random_vectors(random, 1, global_width)),
        documents=some.take(np.array(copies)),
        ids=[f"d{number:02d}" for number in draw(st.permutations(range(n)))],
        copies=copies,
        cuts=draw(st.lists(st.integers(0, n), max_size=3)),
        format=format,
        mean=mean,
    )


@contextmanager
def index_of(corpus: Corpus, **settings: Any) -> Iterator[Index]:
    """An index of the corpus, segment by segment, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "width": corpus.documents.units.width,
            "global_width": corpus.documents.global_.shape[1],
            "format": corpus.format,
            "fusion": ALPHAS,
        } | settings
        path, disk = Path(folder) / "index", QuickDisk()
        made = settings_for(None, fingerprint="none", **settings)
        if corpus.mean is not None:
            made = replace(made, mean=tuple(corpus.mean[: made.width].tolist()))
        create(path, made, disk)
        with Index.open(path, disk=disk) as index:
            for first, last in pairwise(sorted({0, len(corpus), *corpus.cuts})):
                index.add_encoded(
                    corpus.ids[first:last],
                    corpus.documents[first:last],
                    texts=[TEXT] * (last - first),
                    metadata=[{"n": i} for i in range(first, last)],
                )
            yield index


def row_errors(rows: F32, format: Format, width: int, mean: F32 | None = None) -> F64:
    """How far the first `width` numbers of a stored row may lie from those given, as a length.

    int8: each number by half a step, the step being the largest number of the row (without the
    mean) / 127, itself rounded to float16 and never below 6.2e-5; int4 the same, / 7, of the row
    spread over all columns, and doubled. f16: each number by 2^-11 of
    itself, or by half of the smallest float16. A prefix is renormalised, which at most doubles the
    error in proportion to its length: |a/|a| - b/|b|| <= 2 |a - b| / |a|.
    """
    prefix = np.linalg.norm(rows[:, :width].astype(np.float64), axis=1)
    if format in LARGEST:
        rest = rows if mean is None else rows - mean
        if format == "int4":
            rest = spread(rest)
        columns = rows.shape[1] if format == "int4" else width
        largest = np.abs(rest).max(axis=1, initial=0).astype(np.float64)
        steps = np.maximum(largest / LARGEST[format], 6.2e-5)
        errors = np.sqrt(columns) / 2 * steps * (1 + 2**-10)
        if format == "int4":  # a scale that keeps the length moves a row by as much again
            errors *= 2
    elif format == "f16":
        errors = 2**-11 * prefix + np.sqrt(width) * 2**-25
    else:
        errors = np.zeros(len(rows))
    return errors if width == rows.shape[1] else 2 * errors / prefix


def kernel_error(query: F32, format: Format) -> float:
    """How far the kernel's cosines of unit rows may lie from exact ones.

    Over int8 and int4 it rounds each unit of the query to steps of its largest number / L
    (hplus.kernels.maxsim), and the sum over a row of |numbers| is at most the root of its width.
    """
    width = query.shape[1]
    if format not in LARGEST:
        return ROUNDING
    if format == "int4":
        query = spread(query)
    step = np.abs(query).max(initial=0) / min(32767, (2**31 - 1) // (128 * width))
    return float(step / 2 * np.sqrt(width) * 1.05) + ROUNDING


def view_errors(
    query: Encoded, documents: Encoded, format: Format, mean: F32 | None = None
) -> dict[str, F64]:
    """How far the normalised scores of an index may lie from brute force, f64[n] per view.

    A cosine with a unit vector moves by no more than the row does, a maximum by no more than the
    largest of its arguments, and a weighted mean of maxima by no more than the largest of those.
    Lexical weights are float16 in every format: off by 2^-11, half of the smallest one, or what
    lies beyond the largest. `query` at the width of the search, `documents` as stored.
    """
    global_width = documents.global_.shape[1]
    width = query.units.width
    units = row_errors(documents.units.vectors, format, width, mean)
    of_document = pairwise(documents.units.offsets)
    weights = documents.lexical.weights.astype(np.float64)
    off = np.maximum(np.maximum(weights * 2**-11, 2**-25), weights - 65504)
    there = np.searchsorted(query.lexical.ids, documents.lexical.ids)
    shared = np.isin(documents.lexical.ids, query.lexical.ids)
    products = off[shared] * query.lexical.weights[there[shared]]
    text = item_of_row(documents.lexical.offsets)[shared]
    sums = np.bincount(text, products, minlength=len(documents))
    return {
        "global": row_errors(documents.global_, global_format(format), global_width)
        + kernel_error(query.global_, global_format(format)),
        "phrase": np.array([units[a:b].max(initial=0) for a, b in of_document])
        + kernel_error(query.units.vectors, format),
        "lexical": sums * (1 + ROUNDING) / lexical.scale(query.lexical),
    }


def assert_found(
    results: Results,
    corpus: Corpus,
    alphas: Mapping[str, float],
    *,
    k: int,
    allowed: Collection[int] | None = None,
    budget: int | None = None,
    width: int | None = None,
    copies_tie: bool = True,
) -> None:
    """The hits are the k best of the documents allowed, in order, with the scores they have.

    copies_tie: equal documents have equal scores, to the last bit, and come by their ids.
    """
    query = corpus.query.at(width=width)
    expected = fusion.score(query, corpus.documents.at(budget=budget, width=width), alphas)
    views = {"global": expected.global_, "phrase": expected.phrase, "lexical": expected.lexical}
    errors = view_errors(query, corpus.documents, corpus.format, corpus.mean)
    error = sum(alpha * errors[view] for view, alpha in alphas.items())
    may = set(range(len(corpus)) if allowed is None else allowed)
    if set(alphas) == {"lexical"}:  # a document that shares no token is not found at all
        may &= set(np.flatnonzero(expected.lexical > 0).tolist())
    place = {id_: i for i, id_ in enumerate(corpus.ids)}
    found = [place[hit.id] for hit in results]
    assert len(found) == min(k, len(may))
    assert set(found) <= may
    order = [(-hit.score, hit.id) for hit in results]
    assert order == sorted(order)
    for hit, i in zip(results, found, strict=True):
        assert abs(hit.score - expected.fused[i]) <= error[i]
        assert set(hit.views) == set(alphas)
        for view, score in hit.views.items():
            assert abs(score - views[view][i]) <= errors[view][i]
    by_copy: dict[int, list[tuple[str, float | None]]] = {}
    scores: list[float | None] = [None] * len(corpus)
    for hit, i in zip(results, found, strict=True):
        scores[i] = hit.score
    for i in sorted(may):
        by_copy.setdefault(corpus.copies[i], []).append((corpus.ids[i], scores[i]))
        if scores[i] is None:
            assert expected.fused[i] <= results[-1].score + error[i]
    for equal in by_copy.values() if copies_tie else ():  # the smallest ids are found
        given = [score for _, score in sorted(equal)]
        assert len(set(given) - {None}) <= 1
        assert given == sorted(given, key=lambda score: score is None)
