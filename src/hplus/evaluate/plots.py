"""A protocol's figures as pictures: curves, gains, quality against bytes.

SVG and PNG of the same input are the same bytes with the same matplotlib: no date, no random
names, none of the user's own settings. Lines differ in colour (Okabe and Ito's and two of Tol's,
safe for colour-blind readers), in marker and in dash, so that grey paper is enough. A mean with a
missing task is not drawn.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hplus.errors import MissingExtraError
from hplus.evaluate.cost import width_of
from hplus.evaluate.page import Picture
from hplus.evaluate.statistics import Interval
from hplus.evaluate.tables import Row, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INKS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#000000", "#56B4E9", "#7F7F7F", "#882255", "#999933"),
)
_MARKERS = "os^Dvx*P<>"
_DASHES = ("-", "--", "-.", ":")
_SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "hplus",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "legend.frameon": False,
    "legend.handlelength": 3,
    "lines.markersize": 5,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
}
_QUALITY = "nDCG@10, mean over tasks (points of 100)"
_BUDGET = re.compile(r"(?P<rule>.+) to (?P<x>\d+)")
_POOL = re.compile(r"(?P<rule>token|phrase) (?P<x>\d+)")
_WIDTH = re.compile(r"(?P<rule>global|token|phrase) (?P<x>\d+|full)(?P<gate>, \w+ gate)?")
_NAMED = 12  # points of a scatter plot that are all named
# How a curve is drawn: its points from left to right.
Curves = Mapping[str, Sequence[tuple[float, Interval]]]


def draw(summary: Summary, name: str, system: str) -> list[Picture]:
    """The plots of one system under one protocol; `name` begins the names of their files."""
    rows = [row for row in summary.rows if row.system == system]
    curve = {
        "budgets": (_budgets, "nDCG@10 over the budget of documents, with 95 % bands."),
        "exact-count": (_exact_counts, "nDCG@10 where every rule keeps the same number of units "
                        "in every text, with 95 % bands."),
        "pool-sizes": (_pools, "What the gate lets through, and nDCG@10 of its first K candidates "
                       "with 95 % bands."),
        "widths": (_widths, "nDCG@10 over the columns kept, with 95 % bands."),
    }  # fmt: skip
    kind = summary.protocol.kind
    asked: dict[str, tuple[Callable[[Summary, list[Row]], Figure | None], str]] = {}
    if kind in curve:
        asked["curve"] = curve[kind]
    elif kind == "views":
        asked["gains"] = (_gains, "Gain task by task, with 95 % intervals that no correction has "
                          "widened; hollow: the interval has zero in it.")  # fmt: skip
    else:
        asked["lines"] = (_lines, "nDCG@10 of every line, with 95 % intervals.")
    if kind in ("views", "budgets", "widths", "shared-pool"):
        asked["bytes"] = (_bytes, "nDCG@10 against bytes a document. Efficient lines, than which "
                          "none is better and no larger, are filled and numbered.")  # fmt: skip
    found = []
    with _settings():
        for ending, (plot, caption) in asked.items():
            figure = plot(summary, rows) if rows else None
            if figure is not None:
                found.append(Picture(f"{name}-{ending}", caption, _svg(figure), _png(figure)))
    return found


def budget_curves(curves: Curves, taken: tuple[float, float], name: str) -> Picture:
    """Views over KB a document, and the setting to take: its KB and its nDCG@10 in points."""
    with _settings():
        figure = _figure(7.2, 3.8)
        axes = figure.subplots()
        _draw_curves(axes, curves)
        axes.plot(*taken, marker="o", markersize=11, markerfacecolor="none", color="#000000",
                  linestyle="none", label="to take")  # fmt: skip
        _log_sizes(axes)
        axes.set(xlabel="KB (1,000 bytes) of unit vectors a document",
                 ylabel="nDCG@10 (points of 100)")  # fmt: skip
        _legend(figure, axes)
        caption = (
            "Of each view the settings than which none is better and no larger, with 95 % bands."
        )
        return Picture(name, caption, _svg(figure), _png(figure))


def efficient(rows: Sequence[Row]) -> list[Row]:
    """Of rows with cost and mean: those than which none is better and no larger, by bytes."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (_size(row), -_mean(row))):
        if not best or _mean(row) > _mean(best[-1]):
            best.append(row)
    return best


def _budgets(_: Summary, rows: list[Row]) -> Figure | None:
    curves = _curves(rows, _BUDGET)
    if not curves:
        return None
    figure = _figure(7.2, 3.8)
    axes = figure.subplots()
    _draw_curves(axes, curves)
    for place, row in enumerate(row for row in rows if row.line.endswith(", all")):
        if row.macros["all"] is not None:
            axes.axhline(100 * row.macros["all"].mean, color="#555555", linewidth=1,
                         linestyle=("--", ":")[place % 2], label=row.line)  # fmt: skip
    _log_ticks(axes, curves)
    axes.set(xlabel="B, units kept of a document at most", ylabel=_QUALITY)
    _legend(figure, axes)
    return figure


def _exact_counts(summary: Summary, rows: list[Row]) -> Figure | None:
    sides = {
        side: _curves(rows, re.compile(rf"(?P<rule>.+), {re.escape(side)} (?P<x>\d+)"))
        for side in summary.protocol.sides
    }
    sides = {side: curves for side, curves in sides.items() if curves}
    if not sides:
        return None
    figure = _figure(4.0 * len(sides) + 1.2, 3.8)
    panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    titles = {"joint": "queries and documents", "document": "documents only"}
    for axes, (side, curves) in zip(panels, sides.items(), strict=True):
        _draw_curves(axes, curves)
        _log_ticks(axes, curves)
        axes.set(title=f"Budget on {titles[side]}", xlabel="B, units kept of a text at most")
    panels[0].set_ylabel(_QUALITY)
    _legend(figure, panels[0])
    return figure


def _pools(summary: Summary, rows: list[Row]) -> Figure | None:
    curves = _curves(rows, _POOL)
    if not curves:
        return None
    figure = _figure(7.6, 3.6)
    left, right = figure.subplots(1, 2)
    gates: dict[str, list[tuple[float, Interval]]] = {}
    for row in rows:
        found = _POOL.fullmatch(row.line)
        if found is None or found["rule"] != "phrase" or len(row.facts) < len(summary.tasks):
            continue
        for fact in ("recall", "oracle"):
            mean = sum(facts[fact] for facts in row.facts.values()) / len(row.facts)
            gates.setdefault(fact, []).append((float(found["x"]), Interval(mean, mean, mean)))
    names = {"recall": "recall of the pool", "oracle": "oracle nDCG@10"}
    _draw_curves(left, {names[fact]: points for fact, points in gates.items()}, first=2)
    _draw_curves(right, curves)
    for axes, what in ((left, "Mean over tasks (points of 100)"), (right, _QUALITY)):
        _log_ticks(axes, curves)
        axes.set(xlabel="K, candidates of the global gate", ylabel=what)
    _legend(figure, left, right)
    return figure


def _widths(summary: Summary, rows: list[Row]) -> Figure | None:
    found = [(row, _WIDTH.fullmatch(row.line)) for row in rows]
    places = {name: i for i, name in enumerate(dict.fromkeys(m["x"] for _, m in found if m))}
    curves: dict[str, list[tuple[float, Interval]]] = {}
    names = {}
    for row, match in found:
        if match and (mean := row.macros["all"]) is not None:
            rule = match["rule"] + (match["gate"] or "")
            curves.setdefault(rule, []).append((places[match["x"]], mean))
            if rule == "global" and row.cost is not None:
                names[match["x"]] = str(width_of(row.cost.bytes, summary.protocol.format))
    if not curves:
        return None
    figure = _figure(7.2, 3.8)
    axes = figure.subplots()
    _draw_curves(axes, curves)
    labels = [f"full ({names[x]})" if x == "full" and x in names else x for x in places]
    axes.set_xticks(list(places.values()), labels)
    axes.set(xlabel="Columns of a vector", ylabel=_QUALITY)
    _legend(figure, axes)
    return figure


def _gains(summary: Summary, rows: list[Row]) -> Figure | None:
    """Bars of the first contrast; none clear of zero is filled."""
    system = rows[0].system
    tested = next((t for t in summary.contrasts if t.system == system and t.by_task), None)
    if tested is None:
        return None
    gains = list(reversed(tested.by_task.items()))
    figure = _figure(7.2, 1.2 + 0.3 * len(gains))
    axes = figure.subplots()
    for place, (_, gain) in enumerate(gains):
        clear = gain.low > 0 or gain.high < 0
        axes.barh(place, 100 * gain.mean, height=0.6, edgecolor="#0072B2",
                  color="#0072B2" if clear else "#FFFFFF")  # fmt: skip
        axes.plot([100 * gain.low, 100 * gain.high], [place, place], color="#000000", linewidth=1.2,
                  marker="|", markersize=7)  # fmt: skip
    axes.axvline(0, color="#000000", linewidth=0.8)
    axes.set_yticks(range(len(gains)), [task for task, _ in gains])
    axes.grid(visible=False, axis="y")
    ours, theirs = tested.contrast.ours, tested.contrast.theirs
    axes.set_xlabel(f"nDCG@10 of {ours} minus {theirs} (points of 100)")
    return figure


def _lines(_: Summary, rows: list[Row]) -> Figure | None:
    means = [(row.line, found) for row in rows if (found := row.macros["all"]) is not None]
    if not means:
        return None
    means.reverse()
    figure = _figure(7.2, 1.2 + 0.3 * len(means))
    axes = figure.subplots()
    for place, found in enumerate(found for _, found in means):
        axes.plot([100 * found.low, 100 * found.high], [place, place], color="#0072B2",
                  marker="|", markersize=7)  # fmt: skip
        axes.plot(100 * found.mean, place, color="#0072B2", marker="o")
    axes.set_yticks(range(len(means)), [line for line, _ in means])
    axes.set_ylim(-0.6, len(means) - 0.4)
    axes.set_xlabel(_QUALITY)
    return figure


def _bytes(_: Summary, rows: list[Row]) -> Figure | None:
    rows = [row for row in rows if row.cost is not None and row.macros["all"] is not None]
    if not rows:
        return None
    best = efficient(rows)
    figure = _figure(7.6, max(3.8, 1.0 + 0.17 * (len(best) + 1)))
    axes = figure.subplots()
    others = [row for row in rows if row not in best]
    named = len(rows) <= _NAMED
    axes.step([_size(row) for row in best], [_mean(row) for row in best], where="post",
              color="#0072B2", linewidth=1)  # fmt: skip
    for number, row in enumerate(best, start=1):
        _point(axes, row, str(number), color="#0072B2", label=f"{number}  {row.line}")
    for row, letter in zip(others, "abcdefghijklm", strict=False) if named else ():
        label = f"{letter}  {row.line}"
        _point(axes, row, letter, color="#7F7F7F", markerfacecolor="none", label=label)
    if others and not named:
        xs, ys = [_size(row) for row in others], [_mean(row) for row in others]
        axes.plot(xs, ys, linestyle="none", marker="o", color="#7F7F7F", markerfacecolor="none",
                  label="other lines")  # fmt: skip
    _log_sizes(axes)
    axes.set(xlabel="KB (1,000 bytes) of vectors a document", ylabel=_QUALITY)
    _legend(figure, axes)
    return figure


def _point(axes: Axes, row: Row, sign: str, **style: Any) -> None:
    axes.plot(_size(row), _mean(row), marker="o", linestyle="none", **style)
    axes.annotate(sign, (_size(row), _mean(row)), xytext=(0, 6), textcoords="offset points",
                  ha="center", fontsize=8)  # fmt: skip


def _curves(
    rows: Sequence[Row], pattern: re.Pattern[str]
) -> dict[str, list[tuple[float, Interval]]]:
    """Lines that a pattern reads, by their rule, from small to large x."""
    curves: dict[str, list[tuple[float, Interval]]] = {}
    for row in rows:
        found, mean = pattern.fullmatch(row.line), row.macros["all"]
        if found is not None and mean is not None:
            curves.setdefault(found["rule"], []).append((float(found["x"]), mean))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in curves.items()}


def _draw_curves(axes: Axes, curves: Curves, *, first: int = 0) -> None:
    """Curves with their bands; `first`: where the inks begin, that two panels may differ."""
    for place, (name, points) in enumerate(curves.items(), start=first):
        ink = _INKS[place % len(_INKS)]
        xs = [x for x, _ in points]
        lows, highs = ([100 * getattr(y, end) for _, y in points] for end in ("low", "high"))
        if lows != highs:
            axes.fill_between(xs, lows, highs, color=ink, alpha=0.12, linewidth=0)
        axes.plot(xs, [100 * y.mean for _, y in points], color=ink, label=name,
                  marker=_MARKERS[place % len(_MARKERS)],
                  linestyle=_DASHES[place % len(_DASHES)])  # fmt: skip


def _log_ticks(axes: Axes, curves: Curves) -> None:
    """A logarithmic axis with a tick at every x that was measured."""
    xs = sorted({x for points in curves.values() for x, _ in points})
    axes.set_xscale("log")
    axes.set_xticks(xs, [f"{x:,.0f}" for x in xs])
    axes.set_xticks([], minor=True)


def _log_sizes(axes: Axes) -> None:
    """A logarithmic axis with plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.xaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "25" else "")


def _legend(figure: Figure, *panels: Axes) -> None:
    """Beside the panels, one entry a name."""
    entries: dict[Any, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside right upper")


def _size(row: Row) -> float:
    """KB a document."""
    return 0.0 if row.cost is None else row.cost.bytes / 1000


def _mean(row: Row) -> float:
    mean = row.macros["all"]
    return 0.0 if mean is None else 100 * mean.mean


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _svg(figure: Figure) -> str:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue().decode()


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def require_matplotlib() -> None:
    """Say so before hours of measuring, not after."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("plots need matplotlib: pip install 'hplus[lab]'")


@contextmanager
def _settings() -> Iterator[None]:
    """Ours on top of matplotlib's own defaults, whatever the user has set."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams  # its stubs list every name as a literal
        settings.update(_SETTINGS)
        yield
