"""nDCG, as the paper takes it: exponential gain; linear on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np


def ndcg(
    ranking: Sequence[str],
    grades: Mapping[str, int],
    *,
    cut: int = 10,
    gain: Literal["exponential", "linear"] = "exponential",
) -> float:
    """nDCG@cut of one ranking, best document first; 0 where nothing is relevant.

    >>> round(ndcg(["b", "a"], {"a": 1}), 4)
    0.6309
    """

    def gains(values: Sequence[int]) -> float:
        g = np.maximum(np.array(values[:cut], float), 0)
        g = np.exp2(g) - 1 if gain == "exponential" else g
        return float(g @ (1 / np.log2(np.arange(len(g)) + 2)))

    ideal = gains(sorted(grades.values(), reverse=True))
    return gains([grades.get(document, 0) for document in ranking]) / ideal if ideal else 0.0
