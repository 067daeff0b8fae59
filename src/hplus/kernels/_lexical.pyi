from typing import Any

import numpy.typing as npt

def add(
    sums: npt.NDArray[Any],
    documents: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    factors: npt.NDArray[Any],
    /,
) -> None: ...
