"""What a line of a table costs: vectors, bytes, multiplications.

KB are 1,000 bytes. Counts are means over the corpus or the queries; they do not depend on the
machine. What does is in `timing.py`. Bytes are those of vectors or postings alone; what a view has
in the file of an index is more: offsets, importance, spans.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from hplus.index.segment import smallest
from hplus.types import F32, I32, I64
from hplus.units.select import Kept

BYTES = {"f32": 4.0, "f16": 2.0, "int8": 1.0}
SCALE = {"f32": 0.0, "f16": 0.0, "int8": 2.0}
Lexical = tuple[I32, F32, I64]


@dataclass(frozen=True)
class Cost:
    """vectors and bytes a document, units a query, multiplications to score one query's pool."""

    vectors: float
    bytes: float
    query_units: float
    multiplications: float

    def __add__(self, other: Cost) -> Cost:
        """Of several views together."""
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def bytes_of(vectors: float, width: int, format: str) -> float:
    """Of a document's vectors in a format.

    >>> round(bytes_of(288.59, 128, "f16") / 1000, 1)  # KB, as in the paper
    73.9
    """
    return vectors * (width * BYTES[format] + SCALE[format])


def width_of(size: float, format: str) -> int:
    """The columns of one vector of so many bytes.

    >>> width_of(bytes_of(1, 384, "int8"), "int8")
    384
    """
    return round((size - SCALE[format]) / BYTES[format])


def maxsim_cost(units: float, vectors: float, pool: float, width: int, format: str = "f32") -> Cost:
    """Of so many units a query meeting so many vectors of each of `pool` candidates."""
    return Cost(vectors, bytes_of(vectors, width, format), units, units * vectors * width * pool)


def cost_of(
    queries: Kept, documents: Kept, n: int, asked: int, pool: int, width: int, format: str = "f32"
) -> Cost:
    """Of ranking `pool` candidates out of n documents for each of `asked` queries."""
    vectors = len(documents.weights) / max(1, n)
    units = len(queries.weights) / max(1, asked)
    return maxsim_cost(units, vectors, pool, width, format)


def global_cost(n: int, width: int, format: str = "f32") -> Cost:
    """Of one vector a document, all n of them met."""
    return maxsim_cost(1.0, 1.0, n, width, format)


def lexical_cost(queries: Lexical, documents: Lexical, vocabulary: int) -> Cost:
    """Of postings, as an index keeps them: a weight of two bytes and a document's number.

    A query's units are its token ids, its multiplications their postings.
    """
    asked, n = len(queries[2]) - 1, len(documents[2]) - 1
    postings = np.bincount(documents[0], minlength=vocabulary)
    return Cost(
        0.0,
        len(documents[0]) / max(1, n) * _posting(n),
        len(queries[0]) / max(1, asked),
        float(postings[queries[0]].sum()) / max(1, asked),
    )


def lexical_file(documents: Lexical) -> float:
    """Bytes a document of the lexical view in an index: postings, token ids, where each begins."""
    ids, _, offsets = documents
    n, known = len(offsets) - 1, len(np.unique(ids))
    return (len(ids) * _posting(n) + known * (4 + 8) + 8) / max(1, n)


def units_file(n: int, kept: int, dropped: int, spans: I32, width: int, format: str) -> float:
    """Bytes a document of the phrase view in an index of n documents: vectors of the kept units;
    of the dropped ones too, importance and spans, i32[all, 2]; and where each document begins."""
    starts, lengths = spans[:, 0], spans[:, 1] - spans[:, 0]
    span = smallest(starts).itemsize + smallest(lengths).itemsize
    importance_and_spans = (kept + dropped) * (4 + 1) + len(spans) * span
    return (bytes_of(kept, width, format) + importance_and_spans + 4 * 8 * (n + 1)) / max(1, n)


def _posting(n: int) -> int:
    """A weight of two bytes and the number of one of n documents."""
    return 2 + (1 if n <= 2**8 else 2 if n <= 2**16 else 4)
