"""Budget curves as figures: JSON for machines, Markdown for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hplus.evaluate.budget import Setting, best_of, recommend
from hplus.evaluate.statistics import intervals, paired_difference

LINES = {"pooled": "token pooling", "phrase": "phrase", "hybrid": "hybrid"}
COLUMNS = ["setting", "bytes per document", *LINES.values()]

Facts = list[dict[str, Any]]


def facts(found: Sequence[Setting]) -> Facts:
    """Every setting with its means and their 95 % intervals over queries."""
    spreads = {
        view: list(intervals({str(s): {"": getattr(s, view)} for s in found}).values())
        for view in LINES
    }
    return [
        {
            "budget": setting.budget,
            "width": setting.width,
            "format": setting.format,
            "vectors": setting.vectors,
            "bytes": setting.bytes,
            **{view: asdict(spread[row]) for view, spread in spreads.items()},
            "efficient": setting.efficient,
        }
        for row, setting in enumerate(found)
    ]


def advice(found: Sequence[Setting]) -> str:
    """Which setting to take, and how far it trails the best."""
    taken = recommend(found)
    behind = paired_difference({"": taken.hybrid}, {"": best_of(found).hybrid})
    low, high = 100 * behind.low, 100 * behind.high
    return (
        f"Take {taken}: the smallest within a point of the best "
        f"({100 * behind.mean:+.1f}, 95 % {low:+.1f} to {high:+.1f})."
    )


def row(setting: Setting) -> list[str]:
    """One setting as cells under `COLUMNS`."""
    means = (f"{100 * getattr(setting, view).mean():.1f}" for view in LINES)
    return [str(setting), f"{setting.bytes:,.0f}", *means]


def markdown(about: dict[str, Any], found: Sequence[Setting]) -> str:
    """A page: what was measured, the advice, and the efficient settings."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(row(s) for s in found if s.efficient)]
    return "\n\n".join(
        [
            f"# {about['set']} {about['split']}: quality against bytes",
            f"{about['model']} ({about['fingerprint'][:12]}), units by {about['units']}, "
            f"importance by {about['importance']}; {about['queries']} queries, own global top "
            "1,000 rescored, units merged to the budget. nDCG@10. Token pooling: as many vectors, "
            "made by clustering each document's tokens, every query token counting once.",
            advice(found),
            f"Of {len(found)} settings, those whose hybrid no smaller one equals:",
            "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n",
        ]
    )
