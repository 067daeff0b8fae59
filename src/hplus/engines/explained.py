"""What explains a score beside the vectors, as JSON: importance and spans of the units, the same of
those a budget dropped, and the coverage of the text. Floats come back as exact as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from hplus.types import F32, Coverage, Encoded, Units, offsets_of


def explained(encoded: Encoded, i: int) -> str:
    """All of it for one document of several.

    spans: starts and ends of all units, one after another; counts: how many spans each unit has.
    """
    coverage = encoded.coverage
    return json.dumps(
        {
            **_explained(encoded.units, i, ""),
            **_explained(encoded.dropped, i, "dropped_"),
            "coverage": [
                *(int(values[i]) for values in (coverage.tokens, coverage.windows, coverage.cut)),
                *(float(values[i]) for values in (coverage.importance, coverage.kept)),
            ],
        }
    )


def _explained(units: Units, i: int, prefix: str) -> dict[str, Any]:
    first, last = units.offsets[i : i + 2].tolist()
    bounds = units.span_offsets[first : last + 1]
    return {
        f"{prefix}weights": units.weights[first:last].tolist(),
        f"{prefix}counts": np.diff(bounds).tolist(),
        f"{prefix}spans": units.spans[bounds[0] : bounds[-1]].reshape(-1).tolist(),
    }


def units(vectors: F32 | None, kept: Sequence[dict[str, Any]], prefix: str = "") -> Units:
    """The units of some documents from what `explained` gave; without vectors, those that a budget
    dropped (prefix "dropped_")."""
    weights = [weight for own in kept for weight in own[f"{prefix}weights"]]
    counts = [count for own in kept for count in own[f"{prefix}counts"]]
    spans = [number for own in kept for number in own[f"{prefix}spans"]]
    return Units(
        vectors=np.empty((len(weights), 0), np.float32) if vectors is None else vectors,
        weights=np.array(weights, np.float32),
        offsets=offsets_of([len(own[f"{prefix}weights"]) for own in kept]),
        spans=np.array(spans, np.int32).reshape(-1, 2),
        span_offsets=offsets_of(counts),
    )


def coverage(kept: Sequence[dict[str, Any]]) -> Coverage:
    """The coverage of some documents from what `explained` gave."""
    columns = list(zip(*(own["coverage"] for own in kept), strict=True)) or [()] * 5
    return Coverage(
        tokens=np.array(columns[0], np.int32),
        windows=np.array(columns[1], np.int32),
        cut=np.array(columns[2], np.int32),
        importance=np.array(columns[3], np.float32),
        kept=np.array(columns[4], np.float32),
    )
