"""Budget curves in figures, for machines and for people: JSON, Markdown, a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hplus.evaluate.budget import Setting, best_of, recommend
from hplus.evaluate.page import Block, Heading, Picture, Table
from hplus.evaluate.plots import budget_curves
from hplus.evaluate.resampling import intervals
from hplus.evaluate.statistics import Interval, paired_difference

VIEWS = {"pooled": "token pooling", "phrase": "phrase", "hybrid": "hybrid"}
COLUMNS = ["setting", "bytes a document", *VIEWS.values()]

Facts = list[dict[str, Any]]


def facts(found: Sequence[Setting]) -> Facts:
    """Every setting with the means of its views, each with its 95 % interval over queries."""
    spreads = {
        view: list(intervals({str(s): {"": getattr(s, view)} for s in found}).values())
        for view in VIEWS
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
    """Which setting to take, and what it loses."""
    taken = recommend(found)
    behind = paired_difference({"": taken.hybrid}, {"": best_of(found).hybrid})
    low, high = 100 * behind.low, 100 * behind.high
    return (
        f"Take {taken}: the smallest within a point of the best "
        f"({100 * behind.mean:+.1f}, 95 % {low:+.1f} to {high:+.1f})."
    )


def row(setting: Setting) -> list[str]:
    """Under `COLUMNS`."""
    means = (f"{100 * getattr(setting, view).mean():.1f}" for view in VIEWS)
    return [str(setting), f"{setting.bytes:,.0f}", *means]


def page(about: dict[str, Any], found: Sequence[Setting]) -> list[Block]:
    """One set: what was measured, the efficient settings; its picture comes after it."""
    return [
        Heading(1, f"{about['set']} {about['split']}: quality against bytes"),
        f"{about['model']} ({about['fingerprint'][:12]}), units by {about['units']}, importance by "
        f"{about['importance']}; {about['queries']} queries, own global top 1,000 rescored, units "
        "merged to the budget. nDCG@10. Token pooling: as many vectors, made by clustering each "
        "document's tokens, every query token counting once.",
        advice(found),
        f"Of {len(found)} settings, those whose hybrid no smaller one equals:",
        Table(COLUMNS, [row(setting) for setting in found if setting.efficient]),
    ]


def picture(name: str, found: Sequence[Setting], measured: Facts) -> Picture:
    """Of each view its own efficient settings."""
    curves: dict[str, list[tuple[float, Interval]]] = {}
    for view, label in VIEWS.items():
        points: list[tuple[float, Interval]] = []
        for setting in sorted(measured, key=lambda own: (own["bytes"], -own[view]["mean"])):
            if not points or setting[view]["mean"] > points[-1][1].mean:
                points.append((setting["bytes"] / 1000, Interval(**setting[view])))
        curves[label] = points
    taken = recommend(found)
    return budget_curves(curves, (taken.bytes / 1000, 100 * float(taken.hybrid.mean())), name)
