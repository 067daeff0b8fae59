"""Results as pictures: curves, gains, quality against bytes. SVG, made of the same figures as the
tables.

The same input gives the same bytes with the same matplotlib: no date, no random names, none of the
user's own settings. Lines differ in colour (Okabe and Ito's and two of Tol's, safe for colour-blind
readers), in marker and in dash, so that grey paper is enough. A mean with a missing task is not
drawn. What a kind of protocol wants drawn is said by its `Kind`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hplus.errors import InputError
from hplus.evaluate.budget_report import LINES
from hplus.evaluate.statistics import Interval
from hplus_lab.cache import write
from hplus_lab.kinds import KINDS
from hplus_lab.kinds.kind import Curve
from hplus_lab.protocol import METRICS
from hplus_lab.results import read_results
from hplus_lab.summary import LineFigures, Summary

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
}
_NAMED = 12  # points of a scatter plot that are all named
Curves = Mapping[str, Sequence[tuple[float, Interval]]]
"""Name -> points from left to right."""


def plot_results(folder: Path, out: Path) -> list[Path]:
    """The plots of every protocol and system in a folder of results, as SVG files."""
    found = []
    for summary in read_results(folder).summaries:
        for system in summary.systems:
            for ending, picture in draw(summary, system).items():
                names = (file_name(summary.protocol.name), file_name(system), ending)
                found.append(out / f"{'-'.join(names)}.svg")
                write(found[-1], picture)
    return found


def plot_budgets(path: Path, out: Path) -> Path:
    """The curve of `hplus evaluate budget --out NAME`, from its NAME.json, as an SVG file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        settings = [row for row in table["settings"] if row["efficient"]]
        curves = {
            name: [(row["bytes"] / 1000, Interval(**row[view])) for row in settings]
            for view, name in LINES.items()
        }
        taken = table["recommended"]
        best = (taken["bytes"] / 1000, 100 * taken["hybrid"]["mean"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not the JSON file of `hplus evaluate budget --out`: {error}"
        ) from None
    target = out / f"{path.stem}.svg"
    with _settings():
        figure = _figure(7.2, 3.8)
        axes = figure.subplots()
        _draw_curves(axes, curves)
        axes.plot(*best, marker="o", markersize=11, markerfacecolor="none", color="#000000",
                  linestyle="none", label="recommended")  # fmt: skip
        _log_sizes(axes)
        axes.set(xlabel="KB (1,000 bytes) of unit vectors a document",
                 ylabel="nDCG@10 (points of 100)")  # fmt: skip
        _legend(figure, axes)
        write(target, _svg(figure))
    return target


def draw(summary: Summary, system: str) -> dict[str, bytes]:
    """The plots of one system under one protocol, by the end of their files' names."""
    kind = KINDS[summary.protocol.kind]
    rows = [row for row in summary.rows if row.system == system and row.macros["all"] is not None]
    if not rows:
        return {}
    found = {}
    with _settings():
        if kind.curve is not None:
            found["curve"] = _curve_plot(summary, rows, kind.curve)
        elif not kind.gains:
            found["lines"] = _lines_plot(summary, rows)
        if kind.gains and (gains := _gains_plot(summary, system)) is not None:
            found["gains"] = gains
        if kind.sizes:
            found["bytes"] = _bytes_plot(summary, rows)
        return {ending: _svg(figure) for ending, figure in found.items()}


def efficient(rows: Sequence[LineFigures]) -> list[LineFigures]:
    """Of rows with cost and mean: those than which none is better and no larger, by bytes."""
    best: list[LineFigures] = []
    for row in sorted(rows, key=lambda row: (_size(row), -_mean(row))):
        if not best or _mean(row) > _mean(best[-1]):
            best.append(row)
    return best


def file_name(name: str) -> str:
    """A name as part of a file's name; what had to change is told apart by its hash.

    >>> file_name("hplus-mini"), file_name("a/b")
    ('hplus-mini', 'a-b-c14cdd')
    """
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip(".-")
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _curve_plot(summary: Summary, rows: Sequence[LineFigures], curve: Curve) -> Figure:
    """Lines that have the coordinate as curves, one panel for each value of another; the others
    as level rules."""
    key, titles = curve.panels or ("", {"": ""})
    panels = {value: [row for row in rows if row.at.get(key, "") == value] for value in titles}
    panels = {value: own for value, own in panels.items() if own}
    figure = _figure(4.0 * len(panels) + 3.2, 3.8)
    places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (value, own) in zip(places, panels.items(), strict=True):
        curves: dict[str, list[tuple[float, Interval]]] = {}
        for row in own:
            if (x := row.at.get(curve.x)) is None:
                continue
            name = ", ".join(str(row.at[part]) for part in curve.by if part in row.at)
            curves.setdefault(name, []).append((float(x), _whole(row)))
            for fact in curve.facts if len(row.facts) == len(summary.tasks) else ():
                mean = sum(facts[fact] for facts in row.facts.values()) / len(row.facts)
                point = (float(x), Interval(mean, mean, mean))
                if point not in curves.setdefault(f"{fact} of the candidates", []):
                    curves[f"{fact} of the candidates"].append(point)
        _draw_curves(axes, {name: sorted(points, key=_place) for name, points in curves.items()})
        level = [row for row in own if row.at.keys() <= {*curve.by, key}]
        for place, row in enumerate(level):
            axes.axhline(_mean(row), color="#555555", linewidth=1,
                         linestyle=("--", ":")[place % 2], label=row.line)  # fmt: skip
        _log_ticks(axes, curves)
        axes.set(xlabel=curve.label, title=titles[value])
    places[0].set_ylabel(_quality(summary))
    _legend(figure, *places)
    return figure


def _gains_plot(summary: Summary, system: str) -> Figure | None:
    """The first contrast task by task, with intervals that no correction has widened; bars whose
    interval has zero in it are hollow."""
    outcome = next((o for o in summary.outcomes if o.system == system and o.by_task), None)
    if outcome is None:
        return None
    gains = list(reversed(outcome.by_task.items()))
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
    ours, theirs = outcome.contrast.ours, outcome.contrast.theirs
    axes.set_xlabel(f"{METRICS[summary.protocol.metric]} of {ours} minus {theirs} (points of 100)")
    return figure


def _lines_plot(summary: Summary, rows: Sequence[LineFigures]) -> Figure:
    """Every line with its interval."""
    figure = _figure(7.2, 1.2 + 0.3 * len(rows))
    axes = figure.subplots()
    for place, row in enumerate(reversed(rows)):
        found = _whole(row)
        axes.plot([100 * found.low, 100 * found.high], [place, place], color="#0072B2",
                  marker="|", markersize=7)  # fmt: skip
        axes.plot(100 * found.mean, place, color="#0072B2", marker="o")
    axes.set_yticks(range(len(rows)), [row.line for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(_quality(summary))
    return figure


def _bytes_plot(summary: Summary, rows: Sequence[LineFigures]) -> Figure:
    """Lines against bytes a document. Efficient lines, than which none is better and no larger,
    are filled and numbered."""
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
    axes.set(xlabel="KB (1,000 bytes) of vectors a document", ylabel=_quality(summary))
    _legend(figure, axes)
    return figure


def _quality(summary: Summary) -> str:
    return f"{METRICS[summary.protocol.metric]}, mean over tasks (points of 100)"


def _point(axes: Axes, row: LineFigures, sign: str, **style: Any) -> None:
    axes.plot(_size(row), _mean(row), marker="o", linestyle="none", **style)
    axes.annotate(sign, (_size(row), _mean(row)), xytext=(0, 6), textcoords="offset points",
                  ha="center", fontsize=8)  # fmt: skip


def _draw_curves(axes: Axes, curves: Curves) -> None:
    """Curves with their bands."""
    for place, (name, points) in enumerate(curves.items()):
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


def _place(point: tuple[float, Interval]) -> float:
    return point[0]


def _size(row: LineFigures) -> float:
    """KB a document."""
    return 0.0 if row.cost is None else row.cost.bytes / 1000


def _whole(row: LineFigures) -> Interval:
    found = row.macros["all"]
    assert found is not None  # rows without it are not drawn
    return found


def _mean(row: LineFigures) -> float:
    return 100 * _whole(row).mean


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _svg(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


@contextmanager
def _settings() -> Iterator[None]:
    """Ours on top of matplotlib's own defaults, whatever the user has set."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams  # its stubs list every name as a literal
        settings.update(_SETTINGS)
        yield
