from typing import Any

import numpy.typing as npt

AVX2: bool

def score(
    query: npt.NDArray[Any],
    weights: npt.NDArray[Any] | None,
    vectors: npt.NDArray[Any],
    scales: npt.NDArray[Any] | None,
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    scores: npt.NDArray[Any],
    portable: bool,
    /,
) -> None: ...
