from typing import Any

import numpy.typing as npt

def ward(
    costs: npt.NDArray[Any],
    masses: npt.NDArray[Any],
    pairs: npt.NDArray[Any],
    heights: npt.NDArray[Any],
    /,
) -> None: ...
