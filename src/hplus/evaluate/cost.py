"""What a line of a table costs: vectors, bytes, multiplications; and, apart from them, times.

KB are 1,000 bytes. Counts are means over the corpus or the queries; they do not depend on the
machine. Times do, and are kept in a file of their own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from hplus.kernels import weighted_maxsim
from hplus.types import I64
from hplus.units.select import Kept

BYTES = {"f32": 4.0, "f16": 2.0, "int8": 1.0}
SCALE = {"f32": 0.0, "f16": 0.0, "int8": 2.0}
TIMED = 100


@dataclass(frozen=True)
class Cost:
    """vectors and bytes a document, units a query, multiplications to score one query's pool."""

    vectors: float
    bytes: float
    query_units: float
    multiplications: float


def bytes_of(vectors: float, width: int, format: str) -> float:
    """Of a document's vectors in a format.

    >>> round(bytes_of(288.59, 128, "f16") / 1000, 1)  # KB, as in the paper
    73.9
    """
    return vectors * (width * BYTES[format] + SCALE[format])


def cost_of(
    queries: Kept, documents: Kept, n: int, asked: int, pool: int, width: int, format: str = "f32"
) -> Cost:
    """Of ranking `pool` candidates out of n documents for each of `asked` queries."""
    vectors = len(documents.weights) / max(1, n)
    units = len(queries.weights) / max(1, asked)
    return Cost(vectors, bytes_of(vectors, width, format), units, units * vectors * width * pool)


def latency(queries: Kept, documents: Kept, pools: I64) -> dict[str, float]:
    """Milliseconds to score one query's pool on one thread, median and 95th percentile."""
    starts, ends = documents.offsets[:-1], documents.offsets[1:]
    rows = np.linspace(0, len(pools) - 1, min(TIMED, len(pools))).astype(int)
    times = []
    for row in [rows[0], *rows]:  # the first one twice: it warms
        own = slice(queries.offsets[row], queries.offsets[row + 1])
        places = np.sort(pools[row])
        started = time.perf_counter()
        weighted_maxsim(
            queries.vectors[own],
            queries.weights[own],
            documents.vectors,
            None,
            starts[places],
            ends[places],
        )
        times.append(1000 * (time.perf_counter() - started))
    return {
        "p50_ms": float(np.quantile(times[1:], 0.5)),
        "p95_ms": float(np.quantile(times[1:], 0.95)),
    }
