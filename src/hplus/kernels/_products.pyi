from typing import Any

import numpy.typing as npt

def products(
    codes: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    places: npt.NDArray[Any],
    out: npt.NDArray[Any],
    level: int,
    /,
) -> None: ...
