"""Ward's method on points with masses: which groups join, nearest first.

Joining two groups costs what it adds to the weighted sum of squared distances from their means,
m n / (m + n) times the squared distance of the means. Costs of a joined group follow from those of
its parts (Lance and Williams), and chains of nearest neighbours find all joins in quadratic time
(Murtagh). scipy's `linkage` does the same for equal masses and is what tests compare with.

Compiled, or in numpy where nothing could be compiled.
"""

from __future__ import annotations

import numpy as np

from hplus.kernels.maxsim import implementation
from hplus.types import F64, I64

try:
    from hplus.kernels import _ward
except ImportError:
    _ward = None  # type: ignore[assignment]

# A point without mass would join others at no cost; this little is next to none.
LEAST_MASS = 1e-9


def ward(squares: F64, masses: F64) -> I64:
    """The n - 1 joins of n points, i64[n - 1, 2]: of two groups, each named by one of its points,
    of which the first names the group of both. squares f64[n, n]: squared distances.

    >>> squares = np.square(np.subtract.outer([0.0, 1.0, 5.0], [0.0, 1.0, 5.0]))
    >>> ward(squares, np.ones(3)).tolist()
    [[0, 1], [0, 2]]
    """
    n = len(masses)
    if n < 2:
        return np.empty((0, 2), np.int64)
    masses = np.maximum(masses, LEAST_MASS).astype(np.float64)
    costs = np.multiply.outer(masses, masses)
    costs /= np.add.outer(masses, masses)
    costs *= squares
    np.fill_diagonal(costs, np.inf)
    pairs, heights = np.empty((n - 1, 2), np.int64), np.empty(n - 1)
    if _ward is not None and implementation() != "numpy":
        _ward.ward(costs, masses, pairs, heights)
    else:
        _chains(costs, masses, pairs, heights)
    # Chains find joins out of order.
    return pairs[np.argsort(heights, kind="stable")]


def _chains(costs: F64, masses: F64, pairs: I64, heights: F64) -> None:
    """The same as in _ward.c, to the last bit where the compiler fuses no products with sums."""
    n = len(masses)
    chain: list[int] = []
    alive = np.ones(n, np.bool_)
    for done in range(n - 1):
        if not chain:
            chain.append(int(alive.argmax()))
        while True:
            row = costs[chain[-1]]
            nearest = int(row.argmin())
            if len(chain) > 1 and not row[nearest] < row[chain[-2]]:
                break
            if len(chain) == n:
                raise ValueError("costs must be finite and symmetric")
            chain.append(nearest)
        i, j = sorted((chain.pop(), chain.pop()))
        height, joined = costs[i, j], masses[i] + masses[j]
        pairs[done], heights[done] = (i, j), height
        alive[j] = False
        costs[i, j] = costs[j, i] = np.inf
        others = np.flatnonzero(alive)
        own = masses[others]
        ours, theirs = (masses[i] + own) * costs[i, others], (masses[j] + own) * costs[j, others]
        costs[i, others] = costs[others, i] = (ours + theirs - own * height) / (joined + own)
        costs[i, i] = costs[j] = costs[:, j] = np.inf
        masses[i] = joined
