from typing import Any

import numpy.typing as npt

LEVEL: int
SETS: str

def score(
    query: npt.NDArray[Any],
    weights: npt.NDArray[Any] | None,
    vectors: npt.NDArray[Any],
    scales: npt.NDArray[Any] | None,
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    mean: npt.NDArray[Any] | None,
    shares: npt.NDArray[Any] | None,
    scores: npt.NDArray[Any],
    level: int,
    /,
) -> None: ...
def scan(
    query: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    vectors: npt.NDArray[Any],
    scales: npt.NDArray[Any] | None,
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    mean: npt.NDArray[Any] | None,
    shares: npt.NDArray[Any] | None,
    offsets: npt.NDArray[Any],
    k: npt.NDArray[Any],
    least: npt.NDArray[Any],
    base: npt.NDArray[Any] | None,
    longest_whole: float,
    longest_rest: float,
    level: int,
    /,
) -> list[tuple[bytes, bytes]]: ...
def longest(
    vectors: npt.NDArray[Any],
    scales: npt.NDArray[Any] | None,
    width: int,
    mean: npt.NDArray[Any] | None,
    shares: npt.NDArray[Any] | None,
    /,
) -> tuple[float, float]: ...
