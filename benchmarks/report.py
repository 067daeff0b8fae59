"""Write the measured tables into docs/benchmarks.md and README.md from docs/results/*.jsonl.

    python benchmarks/report.py

Text between `<!-- name -->` and `<!-- end -->` is replaced; nothing else is touched.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
# What earlier prototypes measured by the same set-up, width 128 (the shared design notes).
PROTOTYPE = {
    ("tokens", "all units"): (70.3, 34.8),
    ("words", "all units"): (70.4, 35.1),
    ("runs", "all units"): (69.6, 34.1),
    ("tokens", "drop to 64 units"): (61.9, None),
    ("words", "drop to 64 units"): (68.4, None),
    ("runs", "drop to 64 units"): (69.5, None),
    ("tokens", "drop to 32 units"): (52.9, 29.0),
    ("words", "drop to 32 units"): (66.0, 32.8),
    ("runs", "drop to 32 units"): (69.3, 33.6),
    ("tokens", "drop to 16 units"): (46.5, 25.8),
    ("words", "drop to 16 units"): (61.8, 30.4),
    ("runs", "drop to 16 units"): (65.5, 32.3),
    ("tokens", "drop to 8 units"): (37.8, None),
    ("words", "drop to 8 units"): (55.3, None),
    ("runs", "drop to 8 units"): (60.0, None),
    ("words", "merge to 32 units"): (70.2, 34.5),
    ("runs", "merge to 32 units"): (69.8, 33.9),
    ("words", "merge to 16 units"): (69.5, 34.2),
    ("runs", "merge to 16 units"): (66.8, 33.9),
    ("tokens", "ward to 32 units"): (71.5, 34.4),
    ("tokens", "ward to 16 units"): (68.0, 32.4),
}
SETS = ("scifact", "nfcorpus")
README_ROWS = (
    ("phrase", "tokens", "all units", 384),
    ("phrase", "words", "merge to 32 units", 128),
    ("phrase", "words", "merge to 16 units", 128),
    ("phrase", "runs", "merge to 32 units", 128),
    ("hybrid", "runs", "merge to 32 units", 128),
    ("hybrid", "runs", "merge to 16 units", 128),
    ("hybrid", "words", "merge to 16 units", 128),
)


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of a results file."""
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def found(results: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The one row that has these values."""
    fits = [row for row in results if all(row.get(k) == v for k, v in wanted.items())]
    if len(fits) != 1:
        raise SystemExit(f"{len(fits)} rows for {wanted}, expected one; run benchmarks/quality.py")
    return fits[0]


def table(header: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def quality(results: list[dict[str, Any]]) -> str:
    """Phrase view: both sets, both widths, beside the prototypes."""
    keys = dict.fromkeys((r["units"], r["budget"]) for r in results if r["view"] == "phrase")
    body = []
    for units, budget in keys:
        cells = [units, budget]
        for i, name in enumerate(SETS):
            wanted = {"set": name, "units": units, "budget": budget, "weights": "idf"}
            at = [found(results, view="phrase", width=w, **wanted) for w in (128, 384)]
            hybrid = found(results, view="hybrid", width=128, **wanted)
            cells += [f"{r['ndcg10_exponential']:.1f}" for r in (*at, hybrid)]
            before = PROTOTYPE.get((units, budget), (None, None))[i]
            cells.append("" if before is None else f"{before:.1f}")
            if i == 0:
                cells.insert(2, f"{at[0]['vectors']:.0f}")
        body.append(cells)
    columns = ["128", "384", "hybrid", "prototype"]
    header = ["units", "budget", "vectors"]
    header += [f"{name} {column}" for name in ("SciFact", "NFCorpus") for column in columns]
    return table(header, body)


def plain_views(results: list[dict[str, Any]]) -> str:
    """Global at both widths, lexical, and uniform query weights."""
    body = []
    for label, wanted in (
        ("global, 384", {"view": "global", "width": 384}),
        ("global, 128", {"view": "global", "width": 128}),
        ("lexical, over the pool", {"view": "lexical"}),
        *(
            (
                f"{units}, all, uniform weights, {width}",
                {"view": "phrase", "units": units, "weights": "uniform", "width": width},
            )
            for units in ("tokens", "words", "runs")
            for width in (128, 384)
        ),
    ):
        values = [found(results, set=name, **wanted)["ndcg10_exponential"] for name in SETS]
        body.append([label, *(f"{value:.1f}" for value in values)])
    return table(["view", "SciFact", "NFCorpus"], body)


def for_readme(results: list[dict[str, Any]]) -> str:
    """Quality against bytes: int8 vectors with an f16 scale each, plus the global vector."""
    one = [found(results, set=n, view="global", width=384)["ndcg10_exponential"] for n in SETS]
    body = [["global", "one vector of 384", "384", *(f"{value:.1f}" for value in one)]]
    for view, units, budget, width in README_ROWS:
        wanted = {"view": view, "units": units, "budget": budget, "width": width}
        at = [found(results, set=name, weights="idf", **wanted) for name in SETS]
        size = at[0]["vectors"] * (width + 2) + (384 if view == "hybrid" else 0)
        what = f"{units}, {budget}, {width} wide" + (" + global, lexical" * (view == "hybrid"))
        values = [f"{row['ndcg10_exponential']:.1f}" for row in at]
        body.append([view, what, f"{size:,.0f}", *values])
    return table(["view", "units of a document", "bytes of vectors", "SciFact", "NFCorpus"], body)


def listed(name: str) -> str:
    """A small results file as it is."""
    results = rows(name)
    return table(list(results[0]), [[str(value) for value in row.values()] for row in results])


def fill(page: Path, tables: dict[str, str]) -> None:
    """Replace what stands between the markers."""
    text = page.read_text()
    for name, content in tables.items():
        text, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda match, content=content: f"{match[1]}{content}\n{match[2]}",  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
        if count != 1:
            raise SystemExit(f"{page.name} has no place for {name}")
    page.write_text(text)


if __name__ == "__main__":
    measured = rows("frozen")
    small = ("cold_start", "encode_rate", "terms_cost", "memory")
    fill(
        ROOT / "docs" / "benchmarks.md",
        {
            "quality": quality(measured),
            "views": plain_views(measured),
            **{name: listed(name) for name in small},
        },
    )
    fill(ROOT / "README.md", {"quality": for_readme(measured)})
