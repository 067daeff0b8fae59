"""What a line of a table costs: vectors, bytes, multiplications.

KB are 1,000 bytes. Counts are means over the corpus or the queries and do not depend on the
machine; times, which do, are in `clock.py`. `Cost.bytes` counts vectors or postings alone. What a
view takes in the file of an index is more: offsets, importance and spans (`units_file`,
`lexical_file`; a test holds both to the files of an index).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hplus.storage.segment import bytes_of, smallest
from hplus.types import I64, Lexical, Units, item_of_row


@dataclass(frozen=True)
class Cost:
    """Vectors and bytes a document, units a query, multiplications to score one query's pool."""

    vectors: float
    bytes: float
    query_units: float
    multiplications: float

    def __add__(self, other: Cost) -> Cost:
        """Of several views together."""
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def mean_cost(costs: Sequence[Cost]) -> Cost:
    """Of several seeds, or of several tasks of equal weight."""
    return Cost(*(float(np.mean(values)) for values in zip(*map(astuple, costs), strict=True)))


def maxsim_cost(units: float, vectors: float, pool: float, width: int, format: str) -> Cost:
    """Of so many units a query meeting so many vectors of each of `pool` candidates."""
    return Cost(vectors, bytes_of(vectors, width, format), units, units * vectors * width * pool)


def lexical_cost(queries: Lexical, documents: Lexical, vocabulary: int) -> Cost:
    """Of postings, as an index keeps them: a weight of two bytes and a document's number.

    A query's units are its token ids, its multiplications their postings.
    """
    asked, n = max(1, len(queries)), max(1, len(documents))
    postings = np.bincount(documents.ids, minlength=vocabulary)
    return Cost(
        0.0,
        len(documents.ids) / n * _posting(n),
        len(queries.ids) / asked,
        float(postings[queries.ids].sum()) / asked,
    )


def lexical_file(documents: Lexical) -> float:
    """Bytes a document of the lexical view in an index: postings, token ids, where each begins."""
    n, known = len(documents), len(np.unique(documents.ids))
    return (len(documents.ids) * _posting(n) + known * (4 + 8) + 8) / max(1, n)


def units_file(units: Units, held: I64, format: str) -> float:
    """Bytes a document of the phrase view in an index that keeps the first held[text] units of
    each text: their vectors; of the dropped ones too, importance and spans; and where each
    document begins."""
    rank = np.arange(len(units.weights)) - units.offsets[item_of_row(units.offsets)]
    kept = rank < held[item_of_row(units.offsets)]
    places = 0
    for chosen in (kept, ~kept):
        counts = np.diff(units.span_offsets)
        spans = units.spans[np.repeat(chosen, counts)]
        starts, lengths = spans[:, 0], spans[:, 1] - spans[:, 0]
        arrays = (smallest(counts[chosen]), smallest(starts), smallest(lengths))
        places += sum(array.nbytes for array in arrays)
    n, weights = len(units), 4 * len(units.weights)
    vectors = bytes_of(int(kept.sum()), units.width, format)
    return (vectors + weights + places + 4 * 8 * (n + 1)) / max(1, n)


def _posting(n: int) -> int:
    """A weight of two bytes and the number of one of n documents."""
    return 2 + (1 if n <= 2**8 else 2 if n <= 2**16 else 4)
