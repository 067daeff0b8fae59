"""What a query gains by Phrase over Token, beside how well its units end where people end them.

Boundary F1 need not say how well units retrieve: `gain_correlation` asks whether it does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.types import F64
from hplus_lab.audit.items import Item
from hplus_lab.cell import read as read_cell


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho of boundary F1 and gain over the items with both; nan where undefined."""

    items: int
    rho: float
    p: float


def read_gains(path: Path) -> dict[str, float]:
    """Gains from a JSON object {query id or text: number}, or from a cell of a run."""
    try:
        gains = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(gains, dict) or not gains:
        raise InputError(f"{path}: expected a JSON object with a number for each query")
    if isinstance(gains.get("lines"), dict):
        return _gains_of_cell(path)
    for query, gain in gains.items():
        if type(gain) not in (int, float) or not math.isfinite(gain):
            raise InputError(
                f"{path}: expected a number as the gain of {query[:40]!r}, got {json.dumps(gain)}"
            )
    return {query: float(gain) for query, gain in gains.items()}


def gain_correlation(items: Sequence[Item], values: F64, gains: Mapping[str, float]) -> Correlation:
    """Boundary F1 f64[n] beside the gain of the item's query, found by its id or by its text.

    Items without a gain or a boundary F1 are left out. Undefined for fewer than three items, or
    where one side does not vary.
    """
    pairs = []
    for item, value in zip(items, values.tolist(), strict=True):
        known = [key for key in (item.query_id, item.text) if key is not None and key in gains]
        if known and not np.isnan(value):
            pairs.append((value, gains[known[0]]))
    if not pairs:
        raise InputError(
            f"none of the {len(gains)} gains is of a query of this audit; "
            "name them by query_id or by text"
        )
    ours, theirs = np.array(pairs).T
    if len(pairs) < 3 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return Correlation(len(pairs), float("nan"), float("nan"))
    from scipy import stats

    found = stats.spearmanr(ours, theirs)
    return Correlation(len(pairs), float(found.statistic), float(found.pvalue))


def _gains_of_cell(path: Path) -> dict[str, float]:
    cell = read_cell(path)
    lacking = [name for name in ("phrase", "token") if name not in cell.lines]
    if lacking:
        raise InputError(
            f"{path} is a cell of {cell.protocol} without a line {lacking[0]!r}; "
            "give a cell of broad-deployed"
        )
    gained = cell.lines["phrase"].values - cell.lines["token"].values
    return dict(zip(cell.query_ids, gained.tolist(), strict=True))
